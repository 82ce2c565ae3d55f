"""Findings of audits of models without a planted shortcut. `python benchmarks/false_alarms.py 14 FOLDER …`

14 models for each folder: CIFAR-10, the idx files of MNIST or Fashion-MNIST, or class folders; and on drawn textures.
Each model has up to three random classes. Models at chance aren't counted. Half a minute per model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

import agop
from agop.bench.scenarios.base import normalised
from agop.bench.scenarios.planted import labelled_images
from agop.tables import Table

SIDE, CLASSES, TRAINING, AUDITED, EPOCHS = 32, 3, 400, 200, 10


def textures() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noise of five classes: each has its own direction and width of stripes."""
    random, frequencies = np.random.default_rng(0), np.fft.fftfreq(SIDE)
    images, labels = [], np.arange(5 * (TRAINING + AUDITED)) % 5
    for label in labels:
        angle = np.pi * label / 5 + 0.1 * random.standard_normal()
        along = np.cos(angle) * frequencies[:, None] + np.sin(angle) * frequencies
        across = np.cos(angle) * frequencies - np.sin(angle) * frequencies[:, None]
        band = np.exp(-((np.abs(along) - 0.1 - 0.03 * label) ** 2 + across**2) / 0.01)
        noise = np.fft.ifft2(np.fft.fft2(random.standard_normal((3, SIDE, SIDE))) * band).real
        images.append(noise / noise.std() * random.uniform(20, 50) + random.uniform(80, 170))
    return np.stack(images).clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1), labels


def small_cnn(classes: int) -> nn.Module:
    """Three convolutions with a stride of 2."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes)),
    )


def audited(images: NDArray[np.uint8], labels: NDArray[np.int64], seed: int) -> agop.Audit:
    """The audit of a network that was trained on other images of the same classes."""
    random = np.random.default_rng(seed)
    names = np.sort(random.permutation(np.unique(labels))[:CLASSES])
    members = [random.permutation(np.flatnonzero(labels == name)) for name in names]
    tests = [part[: min(AUDITED, len(part) // 2)] for part in members]
    rest = random.permutation(np.concatenate([part[AUDITED : AUDITED + TRAINING] for part in members]))
    torch.manual_seed(seed)
    model = small_cnn(len(names))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    targets = torch.from_numpy(np.searchsorted(names, labels))
    for _ in range(EPOCHS):
        for part in torch.split(torch.from_numpy(random.permutation(rest)), 64):
            optimizer.zero_grad()
            cross_entropy(model(normalised(images[part.numpy()])), targets[part]).backward()
            optimizer.step()
    chosen = np.concatenate(tests)
    return agop.audit(model.eval(), normalised(images[chosen]), targets[chosen], progress=False)


def main() -> None:
    data = {Path(folder).name: labelled_images(Path(folder), SIDE) for folder in sys.argv[2:]}
    data["textures"] = textures()
    audits: dict[str, list[agop.Audit]] = {name: [] for name in data}
    for seed in range(int(sys.argv[1])):
        for name, (images, labels) in data.items():
            audit = audited(images, labels, seed)
            if not audit.at_chance:
                audits[name].append(audit)
            for line in (*(finding.sentence for finding in audit.findings), *audit.close):
                print(name, seed, line)
        rows = [
            [
                name,
                len(some),
                f"{100 * np.mean([audit.accuracy for audit in some]):.0f} %",
                sum(bool(audit.findings) for audit in some),
                sum(bool(audit.close) for audit in some),
            ]
            for name, some in audits.items()
            if some
        ]
        print(
            *Table(("data", "models", "mean accuracy", "with a finding", "close"), rows).markdown(),
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
