"""Digits on photographs: which digit is it? The mask is its pixels."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

import agop.bench.scenarios.base as scenario
from agop.bench.networks import SmallResNet
from agop.bench.scenarios.base import BLACK, WHITE, Recipe, Scenario, Splits, options_of, register, selected
from agop.errors import InputError
from agop.images.datasets import read_digits

Bytes = NDArray[np.uint8]
BACKGROUNDS = ("photos", "pink-noise")
_FEWEST = 100
# The digit's box relative to the side of the image, and the margin in a box that may be outside the image.
_SMALLEST, _LARGEST, _MARGIN = 0.5, 0.875, 4 / 28
_BATCH, _DRAWN = 1000, 5000
_RECIPE = Recipe(
    epochs=6, batch=64, learning_rate=5e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle", best=True,
    snapshot_every=None, hook_every=8,
)  # fmt: skip
# Validation accuracy below which a training starts again; guessing has 0.1.
_LEARNED = 0.3


@dataclass(frozen=True)
class Options:
    """Options of a composite run. `digits` are MNIST's idx files, `photos` a folder or file of photographs.

    Without them, digits are drawn in Pillow's font, and the background is pink noise.
    """

    digits: str | None = None
    photos: str | None = None
    size: int = 32
    samples: int = 20_000

    def __post_init__(self) -> None:
        if self.size not in (32, 64):
            raise InputError(f"size is {self.size}: pass 32 or 64")
        if self.samples < _FEWEST:
            raise InputError(f"samples is {self.samples}: pass {_FEWEST} or more")


def composite(name: str, **options: Any) -> Scenario:
    """A scenario with options, the fields of `Options`: "composite", or "composite-still" with a fixed place."""
    settings = options_of(Options, options)
    digits, photos = "digits in Pillow's font, a stand-in for MNIST", "pink noise, a stand-in for photographs"
    if settings.digits:
        digits = f"digits from {Path(settings.digits).name}"
    if settings.photos:
        photos = f"photographs from {Path(settings.photos).name}"
    return Scenario(
        name,
        "composite",
        partial(_make, settings, name == "composite"),
        SmallResNet,
        layer="layer3",
        backgrounds=BACKGROUNDS,
        masks=("own",),
        recipe=_RECIPE,
        prior="checkpoint",
        learned=_LEARNED,
        snapshot_images=100,
        grids=50,
        black=BLACK,
        white=WHITE,
        network_name="small-resnet",
        classes=tuple(map(str, range(10))),
        description=f"SmallResNet, trained from scratch: {_RECIPE}, best of {_RECIPE.epochs} epochs, on "
        f"{settings.samples:,} images at {settings.size}×{settings.size}: {digits}, on {photos}.",
        configure=lambda options: composite(name, **options),
    )


def _make(options: Options, moving: bool, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    count = options.samples
    parts = np.split(random.permutation(count), [8 * count // 10, 9 * count // 10])
    behind = _backgrounds(background, options, parts, random)
    if options.digits is None:
        digits, classes = scenario.drawn_digits(min(count, _DRAWN), random)
    else:
        digits, classes = read_digits(Path(options.digits))
    chosen = scenario.shared_out(len(classes), parts, random)  # digits in different splits are different
    coverage = _placed(digits[chosen], options.size, moving, random)
    colours = random.integers(0, 256, (count, 1, 1, 3), dtype=np.uint8)
    images, labels = np.empty_like(behind), classes[chosen].astype(np.int64)
    for start in range(0, count, _BATCH):
        part = slice(start, start + _BATCH)
        weight = coverage[part, ..., None]
        images[part] = _bytes(weight * colours[part] + (1 - weight) * behind[part])
    train, validation, test = selected(parts, images, labels, {masks: coverage >= 0.5}, masks)
    return train, validation, test


def _backgrounds(name: str, options: Options, parts: list[scenario.Indices], random: np.random.Generator) -> Bytes:
    """Backgrounds (N,S,S,3). Photographs in different splits are different."""
    if name == "photos":
        photos = scenario.photographs(options.photos, options.size, options.samples)
        return photos[scenario.shared_out(len(photos), parts, random)]
    brightness = scenario.pink_noise(options.samples, options.size, random)[..., None]
    hues = scenario.pink_noise(3 * options.samples, options.size, random).reshape(-1, 3, options.size, options.size)
    return _bytes(128 + 45 * brightness + 15 * hues.transpose(0, 2, 3, 1))


def _placed(digits: Bytes, size: int, moving: bool, random: np.random.Generator) -> NDArray[np.float32]:
    """How much of each pixel a digit covers (N,size,size), at most 1: of random size, at a random place or centred."""
    scale = random.uniform(_SMALLEST, _LARGEST, len(digits))
    # From the centre of the image, whose sides are at −1 and 1.
    farthest = 1 - scale * (1 - 2 * _MARGIN)
    centre = random.uniform(-1, 1, (2, len(digits))) * farthest * moving
    zero = np.zeros_like(scale)
    matrices = np.stack([[1 / scale, zero, -centre[0] / scale], [zero, 1 / scale, -centre[1] / scale]])
    theta = torch.from_numpy(matrices).permute(2, 0, 1).float()
    covered = []
    for some, maps in zip(torch.split(torch.from_numpy(digits), _BATCH), torch.split(theta, _BATCH), strict=True):
        grid = functional.affine_grid(maps, [len(some), 1, size, size], align_corners=False)
        values = functional.grid_sample(some[:, None].float(), grid, align_corners=False)[:, 0]
        covered.append(values / values.amax((1, 2), keepdim=True))
    return torch.cat(covered).numpy()


def _bytes(values: NDArray[np.floating]) -> Bytes:
    return np.asarray(values.round().clip(0, 255), dtype=np.uint8)


for _name in ("composite", "composite-still"):
    register(composite(_name))
