"""Time and memory of an audit: 10 classes at 64 px, ResNet-18. `python benchmarks/audit_speed.py` (15 minutes).

Bars: 10 × 500 pictures in four minutes on two cores, and memory that doesn't grow with the number of pictures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import agop
from agop.bench import ResNet18
from agop.bench.scenarios.planted import labelled_images

CLASSES, SIDE, BATCH = 10, 64, 64
WEIGHTS = "weights.pt"
MOST_SECONDS, MOST_GROWTH = 240.0, 1.1


def save_data(folder: Path) -> None:
    """Drawn digits as files, because drawing them takes more memory than the audit."""
    for name, values in zip(("images", "labels"), labelled_images(None, SIDE), strict=True):
        np.save(folder / f"{name}.npy", values)


def batches(folder: Path, per_class: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The digits, one batch at a time."""
    images, labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("images", "labels"))
    for start in range(0, CLASSES * per_class, BATCH):
        part = slice(start, min(start + BATCH, CLASSES * per_class))
        pixels, classes = (torch.from_numpy(values[part].copy()) for values in (images, labels))
        yield pixels.permute(0, 3, 1, 2) / 255, classes


def trained(folder: Path, per_class: int) -> nn.Module:
    """A ResNet-18 after one epoch."""
    torch.manual_seed(0)
    model = ResNet18(CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for images, labels in batches(folder, per_class):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval()


def measure(folder: Path, per_class: int) -> None:
    """In a new process: audit, and print seconds, peak memory and what was found."""
    model = ResNet18(CLASSES)
    model.load_state_dict(torch.load(folder / WEIGHTS, weights_only=True))
    before, start = peak_memory(), time.perf_counter()
    audit = agop.audit(model.eval(), batches(folder, per_class), progress=False)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, peak_memory(), peak_memory() - before, audit.accuracy, len(audit.findings)]))


def peak_memory() -> float:
    """Peak memory of this process in MiB. Not ru_maxrss: a child process inherits its parent's value."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        save_data(Path(folder))
        torch.save(trained(Path(folder), 500).state_dict(), Path(folder) / WEIGHTS)
        results = {}
        for count in (250, 500):
            command = [sys.executable, __file__, folder, str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[count] = json.loads(done.stdout.splitlines()[-1])
            seconds, peak, growth, accuracy, findings = results[count]
            print(
                f"{CLASSES} × {count} pictures: {seconds:.0f} s, peak {peak:,.0f} MiB ({growth:,.0f} in the audit), "
                f"accuracy {accuracy:.2f}, {findings} findings"
            )
    ratio = results[500][1] / results[250][1]
    print(f"seconds {results[500][0]:.0f}, bar {MOST_SECONDS:.0f}; memory ratio {ratio:.2f}, bar {MOST_GROWTH}")
    return int(results[500][0] > MOST_SECONDS or ratio > MOST_GROWTH)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.exit(main())
