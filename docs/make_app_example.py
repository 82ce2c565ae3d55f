"""Make the example's files again: `python docs/make_app_example.py [FOLDER]`. Same seed, same files up to rounding."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save as bytes_from_tensors
from torch.nn import functional

from agop.app.example import FOLDER, NAMES, PRIOR, WEIGHTS
from agop.bench.networks import CNN8by8
from agop.bench.scenarios import Split, xai_tris
from agop.collect.hook import AGOPTrainingHook
from agop.io import write_atomically
from agop.prior.agop import AGOP

_EPOCHS, _BATCH = 40, 64
_SHAPES, _CONFIDENT = ("T", "L"), 0.9


def make(folder: Path) -> None:
    """Train the network with the hook, and write its weights, its AGOP file, the class names and three images."""
    training, _, test = xai_tris("linear")
    model, prior = _trained(training)
    write_atomically(folder / WEIGHTS.name, bytes_from_tensors(model.state_dict()))
    prior.save(folder / PRIOR.name)
    write_atomically(folder / NAMES.name, "\n".join(_SHAPES).encode() + b"\n")
    for name, row in _example_rows(model, test).items():
        pixels = ((test.images[row, 0] * 0.5 + 0.5).clamp(0, 1) * 255).round().byte()
        Image.fromarray(pixels.numpy()).save(folder / f"{name}.png")


def _trained(data: Split) -> tuple[CNN8by8, AGOP]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    hook = AGOPTrainingHook(model)
    for _ in range(_EPOCHS):
        for rows in torch.split(torch.randperm(len(data)), _BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(model(data.images[rows]), data.labels[rows]))
            optimizer.step()
            hook.step(data.images[rows], data.labels[rows])
    return model, hook.finalize()


def _example_rows(model: CNN8by8, test: Split) -> dict[str, int]:
    """Rows of the first T, the first L and the second T that the network classifies correctly and confidently."""
    with torch.no_grad():
        probabilities = model(test.images).softmax(1)
    confident = probabilities[torch.arange(len(test)), test.labels] > _CONFIDENT
    first, second = ((confident & (test.labels == label)).nonzero().flatten().tolist() for label in (0, 1))
    return {"T-1": first[0], "L-1": second[0], "T-2": first[1]}


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
