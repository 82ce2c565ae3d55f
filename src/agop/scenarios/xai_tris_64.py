"""XAI-TRIS, 64×64: large smooth tetrominoes in noise or on photographs, with masks of the tetrominoes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError
from agop.networks import CNN64
from agop.pictures.photos import read_photos
from agop.scenarios.base import Recipe, Scenario, Splits, options_of, register
from agop.scenarios.noise import pink_noise
from agop.scenarios.pools import FEWEST, shared_out
from agop.scenarios.tetrominoes.mixing import mixed, smoothed, splits, stratified
from agop.scenarios.tetrominoes.patterns import PATTERNS, Canvas, Floats

_SIDE, _SAMPLES = 64, 10_000
# Pink noise is a stand-in for photographs.
BACKGROUNDS = ("white", "correlated", "photos", "pink-noise")
# Weight of the signal in an image with each background.
_ALPHA = {
    "linear": (0.03, 0.02, 0.06, 0.06),
    "multiplicative": (0.65, 0.05, 0.2, 0.2),
    "translations_rotations": (0.575, 0.375, 0.03, 0.03),
    "xor": (0.075, 0.03, 0.13, 0.13),
}
# Standard deviations of the Gaussian filters of patterns and of correlated backgrounds.
_PATTERN_SIGMA, _BACKGROUND_SIGMA = 1.5, 10
# A mask has the pixels where the smoothed pattern, 1 inside a shape, has at least this value.
_IN_MASK = 0.05
# The published recipe is Adam 5e-4 with batches of 512 for up to 500 epochs: too long for two cores.
_SHORT = Recipe(
    epochs=12, batch=64, learning_rate=2e-3, weight_decay=0.0, schedule="one-cycle", best=True, snapshot_every=None,
    hook_every=4,
)  # fmt: skip
# Validation accuracy after five epochs below which a training starts again: from some initializations, the networks
# for xor stay at 0.5.
_LEARNED = 0.65
# The signs of xor are learned late: with the lower rate, a training of 12 epochs ends before that.
_RECIPES = {task: replace(_SHORT, learning_rate=5e-3) if task == "xor" else _SHORT for task in _ALPHA}


@dataclass(frozen=True)
class Options:
    """Options of a run at 64×64. `photos` is a folder or file of photographs, which the background "photos" needs."""

    photos: str | None = None
    samples: int = _SAMPLES

    def __post_init__(self) -> None:
        if self.samples < 2 * FEWEST or self.samples % 2:
            raise InputError(f"samples is {self.samples}: pass an even number, {2 * FEWEST} or more")


def xai_tris_64(task: str, **options: Any) -> Scenario:
    """A scenario with options, the fields of `Options`."""
    settings = options_of(Options, options)
    return Scenario(
        f"{task}-64",
        "xai-tris-64",
        partial(_make, task, settings),
        CNN64,
        layer="conv4",
        backgrounds=BACKGROUNDS,
        masks=("own", "union"),
        recipe=_RECIPES[task],
        prior="checkpoint",
        learned=_LEARNED,
        snapshot_images=100,
        network_name="cnn",
        classes=("equal signs", "unequal signs") if task == "xor" else ("T", "L"),
        description=_description(settings, _RECIPES[task]),
        configure=partial(_configure, task),
    )


def _configure(task: str, options: Mapping[str, Any]) -> Scenario:
    return xai_tris_64(task, **options)


def _description(options: Options, recipe: Recipe) -> str:
    """A sentence for the report: network, training and data."""
    photos = "; pink noise is a stand-in for photographs"
    if options.photos:
        photos = f"; photographs from {Path(options.photos).name}"
    return (
        f"CNN64, trained from scratch: {recipe.optimizer}, {recipe.schedule} to {recipe.learning_rate:g}, batch "
        f"{recipe.batch}, best of {recipe.epochs} epochs, on {options.samples:,} images at {_SIDE}×{_SIDE}{photos}."
    )


def _make(task: str, options: Options, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    labels = np.arange(options.samples) % 2
    parts = stratified(options.samples, random)
    noise = _background(background, options, parts, random)
    canvas = Canvas(_SIDE, scale=4 if task == "translations_rotations" else 8)
    patterns = smoothed(PATTERNS[task](canvas, labels, random), _PATTERN_SIGMA)
    alpha = _ALPHA[task][BACKGROUNDS.index(background)]
    images = mixed(patterns, noise, alpha, product=task == "multiplicative")
    return splits(images, labels, _truths(task, canvas, patterns), masks, parts)


def _background(
    name: str, options: Options, parts: list[NDArray[np.int64]], random: np.random.Generator
) -> NDArray[np.float32]:
    """Backgrounds (N,64,64) with mean 0. Photographs in different splits are different."""
    if name == "photos":
        if options.photos is None:
            raise InputError('photographs are missing: pass photos=FOLDER, or use "pink-noise", their stand-in')
        photos = _grey_photos(Path(options.photos), options.samples)
        return photos[shared_out(len(photos), parts, random)]
    if name == "pink-noise":
        return pink_noise(options.samples, _SIDE, random)
    noise = random.standard_normal((options.samples, _SIDE, _SIDE), dtype=np.float32)
    return noise if name == "white" else smoothed(noise, _BACKGROUND_SIGMA)


@lru_cache(maxsize=1)  # the seeds of a process share the photographs: decoding thousands of files takes longer
def _grey_photos(path: Path, most: int) -> NDArray[np.float32]:
    """Photographs (N,64,64) in grey, each minus its mean."""
    grey = read_photos(path, _SIDE, most) @ np.array([0.299, 0.587, 0.114], np.float32)
    return np.asarray(grey - grey.mean(axis=(1, 2), keepdims=True))


def _truths(task: str, canvas: Canvas, patterns: Floats) -> dict[str, NDArray[np.bool_]]:
    """Masks (N,64,64) by kind: the image's own shapes, and the published ones, both shapes unless they move."""
    own = np.abs(patterns) >= _IN_MASK
    both = (smoothed(canvas.fields(), _PATTERN_SIGMA) >= _IN_MASK).any(axis=0)
    return {"own": own, "union": own if task == "translations_rotations" else np.broadcast_to(both, own.shape)}


for _task in _ALPHA:
    register(xai_tris_64(_task))
