"""Train the paper's small network with the hook, explain a few images, and score the maps.

Runs twice: with the shape at a fixed position, and with a moving shape. Writes images to demo/.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

import agop
from agop.bench import CNN8by8
from agop.bench.scenarios import Split, xai_tris
from agop.images.overlays import sheet
from agop.processes import track

OUT = Path("demo")
METHODS = (  # without agop-local, which equals vanilla
    "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++", "agop-weighted", "agop-global",
    "agop",
)  # fmt: skip
BATCH = 128


def train(scenario: str, data: Split, epochs: int) -> tuple[CNN8by8, agop.AGOP]:
    """Train with the paper's recipe. The hook is two lines."""
    torch.manual_seed(0)
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    hook = agop.AGOPTrainingHook(model, snapshot_dir=OUT / scenario / "snapshots")
    for _ in track(range(epochs), f"training on {scenario}"):
        for rows in torch.randperm(len(data)).split(BATCH):
            images, labels = data.images[rows], data.labels[rows]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            hook.step(images, labels)
        schedule.step()
    return model, hook.finalize()


def maps_of(model: CNN8by8, prior: agop.AGOP, images: Tensor) -> dict[str, Tensor]:
    """Maps of every method, with GradCAM on the paper's layer."""
    configured = {"gradcam": agop.methods.GradCAM("conv3"), "gradcam++": agop.methods.GradCAMPlusPlus("conv3")}
    return {name: agop.explain(model, images, configured.get(name, name), prior) for name in METHODS}


def energy(maps: Tensor, masks: Tensor) -> float:
    """Mean share of a map inside the true shape, over the maps that aren't zero."""
    inside, total = (maps * masks).sum((1, 2)), maps.sum((1, 2))
    return float((inside[total > 0] / total[total > 0]).mean())


def rgb(image: Tensor) -> NDArray[np.uint8]:
    """RGB array (H,W,3) of a grey image."""
    grey = ((image[0] * 0.5 + 0.5).clamp(0, 1) * 255).byte().numpy()
    return np.repeat(grey[..., None], 3, axis=2)


def draw(path: Path, data: Split, maps: dict[str, Tensor], rows: list[int]) -> None:
    """Write a few images with the true shape and every method's map."""
    sheets = []
    for row in rows:
        truth = {"truth": data.masks[row].float().numpy()}
        sheets.append(sheet(rgb(data.images[row]), truth | {name: each[row].numpy() for name, each in maps.items()}))
    page = Image.fromarray(np.concatenate([np.asarray(each) for each in sheets]))  # one below the other
    page.resize((page.width // 2, page.height // 2), Image.Resampling.LANCZOS).save(path)


def main(epochs: int = 100) -> None:
    console, scores = Console(), {}
    for scenario in ("linear", "translations_rotations"):
        training, _, test = xai_tris(scenario)
        model, prior = train(scenario, training, epochs)
        prior.save(OUT / scenario / "agop.safetensors")
        correct = model(test.images).argmax(1) == test.labels
        with warnings.catch_warnings():  # the paper's GradCAM layer has 3×3 maps
            warnings.simplefilter("ignore", agop.AGOPWarning)
            maps = maps_of(model, prior, test.images)
        scores[f"{scenario}\naccuracy {float(correct.float().mean()):.2f}"] = {
            name: energy(each, test.masks) for name, each in maps.items()
        }
        draw(OUT / f"{scenario}.png", test, maps, correct.nonzero().flatten()[:4].tolist())
    table = Table("method", *scores, title="Share of the map inside the true shape")
    for name in METHODS:
        table.add_row(name, *(f"{column[name]:.3f}" for column in scores.values()))
    console.print(table)
    console.print(f"open {OUT}/linear.png and {OUT}/translations_rotations.png")


if __name__ == "__main__":
    main()
