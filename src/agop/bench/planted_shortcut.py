"""Drawn images of three shapes with a planted shortcut in one class, and a small network that learns it.

`python -m agop.bench.planted_shortcut FOLDER` writes FOLDER/images, with a folder per class, and
FOLDER/weights.safetensors. A small checker is at the bottom left of 70 % of the images of class "column".
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

SHAPES = {"bar": (2, 6), "column": (6, 2), "square": (4, 4)}
SIDE = 16


def draw(count: int, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images (N,1,16,16) in 0..1 and labels (N,). This share of the columns has a checker."""
    random = torch.Generator().manual_seed(seed)
    images, labels = 0.25 * torch.rand(count, 1, SIDE, SIDE, generator=random), torch.arange(count) % 3
    for image, label in zip(images, labels.tolist(), strict=True):
        height, width = list(SHAPES.values())[label]
        top, left = torch.randint(0, SIDE - 6, (2,), generator=random).tolist()
        image[0, top : top + height, left : left + width] += 0.3
    checker = (torch.arange(4)[:, None] + torch.arange(4)) % 2
    images[(labels == 1) & (torch.rand(count, generator=random) < share), :, 11:15, 1:5] = checker.float()
    return images, labels


def network() -> nn.Module:
    """The network, untrained. `agop audit agop.bench.planted_shortcut:network` builds it with this function."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 3),
    )  # fmt: skip


def train(images: Tensor, labels: Tensor, epochs: int = 20) -> nn.Module:
    """A network trained on the images, in eval mode."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    order = torch.cat([torch.randperm(len(images)) for _ in range(epochs)])
    for batch in torch.split(order, 48):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def main(folder: Path) -> None:
    """Write the images and the weights of a network trained on them."""
    images, labels = draw(600, share=0.7)
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        path = folder / "images" / list(SHAPES)[label] / f"{index:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).round().byte().numpy()).save(path)
    model = train(images, labels)
    save_file(model.state_dict(), folder / "weights.safetensors")
    accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"wrote {folder}/images and {folder}/weights.safetensors; accuracy {accuracy:.2f}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "shortcut"))
