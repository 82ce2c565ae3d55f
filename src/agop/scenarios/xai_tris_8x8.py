"""XAI-TRIS, 8×8: tetrominoes in noise, with masks of the tetrominoes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from agop.networks import LLR, CNN8by8, MLP8by8
from agop.scenarios.base import Recipe, Scenario, Splits, register, registry
from agop.scenarios.tetrominoes.mixing import mixed, smoothed, splits, stratified
from agop.scenarios.tetrominoes.patterns import PATTERNS, Canvas, Floats

_CANVAS, _IMAGES = Canvas(side=8, scale=1), 10_000
# Networks stay near 0.5 or reach 0.7 and more.
_LEARNED = 0.65
BACKGROUNDS = ("uncorrelated", "correlated")
# Weight of the signal in an image, for uncorrelated and for correlated backgrounds.
_ALPHA = {
    "linear": (0.18, 0.0125),
    "multiplicative": (0.7, 0.1),
    "translations_rotations": (0.65, 0.2),
    "xor": (0.35, 0.15),
}


def xai_tris(scenario: str = "linear", background: str = "uncorrelated", seed: int = 0, masks: str = "own") -> Splits:
    """Training, validation and test data: 8,000, 1,000 and 1,000 images, half of each class.

    Kinds of masks:

    - "own" (or "true"): the shapes in the image;
    - "union": both shapes in every image, at their places, as the benchmark publishes it. A missing shape is evidence
      for the other class. Shapes that move have no such place: "union" is "own".
    - "signed": the masks of xor keep the shapes' signs (−1, 0, 1), as in the public generator. Scored as ground truth,
      opposite signs cancel: this explains the negative scores in the paper's XOR table.

    Splits with "own" masks have "union" masks in `others`, and vice versa.
    """
    return registry.get(scenario).splits(background, seed, masks)


def _make(task: str, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    labels = np.arange(_IMAGES) % 2
    patterns = PATTERNS[task](_CANVAS, labels, random).astype(np.float64)
    noise: Floats = random.normal(0, 0.5, patterns.shape)
    if background == "correlated":
        noise = smoothed(noise, sigma=3)
    alpha = _ALPHA[task][BACKGROUNDS.index(background)]
    images = mixed(patterns, noise, alpha, product=task == "multiplicative")
    return splits(images, labels, _truths(task, patterns, masks), masks, stratified(_IMAGES, random))


def _truths(task: str, patterns: Floats, masks: str) -> dict[str, NDArray[Any]]:
    """Masks (N,8,8) by kind: the signed ones alone, or the image's own and the published ones."""
    if masks == "signed":
        return {"signed": patterns.astype(np.int8)}
    own = patterns != 0
    both = np.broadcast_to(_CANVAS.fields().any(axis=0), own.shape)
    return {"own": own, "union": own if task == "translations_rotations" else both}


def _register(task: str, network_name: str, network: Callable[[], nn.Module], recipe: Recipe) -> None:
    """Register a task with a network. Tasks with the first network, CNN8by8, are named after the task alone."""
    convolutional = network is CNN8by8
    register(
        Scenario(
            task if convolutional else f"{task}-{network_name}",
            "xai-tris",
            partial(_make, task),
            network,
            layer="conv3" if convolutional else None,
            backgrounds=BACKGROUNDS,
            masks=("own", "union", "signed"),
            recipe=recipe,
            classes=("equal signs", "unequal signs") if task == "xor" else ("T", "L"),
            learned=_LEARNED,
            snapshot_images=250,
            task="" if convolutional else task,
            network_name=network_name,
        )
    )


# Learning rates of MLP8by8 and LLR: the best validation accuracy on seeds that no result uses.
for _task in _ALPHA:
    _register(_task, "cnn", CNN8by8, Recipe())
for _task in _ALPHA:
    _register(_task, "mlp", MLP8by8, Recipe(learning_rate=3e-3 if _task == "translations_rotations" else 1e-3))
_register("linear", "llr", LLR, Recipe(learning_rate=3e-2, weight_decay=0.0))
