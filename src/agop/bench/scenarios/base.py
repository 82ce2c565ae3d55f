"""A scenario: data with ground-truth masks from a seed, a network that learns it, and a training recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from agop.errors import InputError
from agop.images.datasets import read_photos
from agop.images.preprocessing import IMAGENET, Preprocessing
from agop.registry import Registry, unknown_name_error

OptionsType = TypeVar("OptionsType")
registry: Registry[Scenario] = Registry("scenario")


@dataclass(frozen=True)
class Split:
    """Images (N,C,H,W), labels (N,) and masks (N,H,W), true where the signal is.

    Args:
        images: Images (N,C,H,W), normalised.
        labels: Classes (N,).
        masks: The main kind of ground truth (N,H,W).
        others: Masks of other kinds, by name.

    Example:
        >>> train, validation, test = agop.bench.scenarios.xai_tris("linear")
        >>> test.first(10).images.shape  # (10, 1, 8, 8)
    """

    images: Tensor
    labels: Tensor
    masks: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def by_kind(self, main: str) -> dict[str, Tensor]:
        """All masks by kind. `main` is the name of the first kind."""
        return {main: self.masks, **self.others}

    def first(self, count: int) -> Split:
        """The first `count` samples."""
        others = {kind: masks[:count] for kind, masks in self.others.items()}
        return Split(self.images[:count], self.labels[:count], self.masks[:count], others)


Splits = tuple[Split, Split, Split]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, and how often the hook collects its prior.

    Args:
        epochs: Passes over the training data.
        batch: Images per step.
        learning_rate: The highest one of the schedule.
        weight_decay: Of the optimizer.
        optimizer: "adam" or "adamw".
        schedule: "cosine" (stepped per epoch) or "one-cycle" (stepped per batch).
        flips: Mirror half of the images.
        best: Keep the weights of the epoch with the best validation accuracy instead of the last.
        snapshot_every: Steps between two snapshots; None: an epoch.
        hook_every: Steps between two passes of the hook.

    Example:
        >>> agop.bench.scenarios.Recipe(epochs=6, batch=64, optimizer="adamw", schedule="one-cycle")
    """

    epochs: int = 100
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: str = "adam"
    schedule: str = "cosine"
    flips: bool = False
    best: bool = False
    snapshot_every: int | None = 100
    hook_every: int = 1

    def __str__(self) -> str:
        return f"{self.optimizer}, {self.schedule} to {self.learning_rate:g}, batch {self.batch}"


@dataclass(frozen=True)
class Scenario:
    """A task of a benchmark: data with known ground truth, a network, and how it's trained.

    Args:
        name: Name of the scenario.
        benchmark: The benchmark that runs it: `agop bench BENCHMARK --scenario NAME`.
        make: Function of background, seed and kind of masks → training, validation and test data, each a `Split`.
        network: Function that returns an untrained network.
        layer: GradCAM's layer; None for a network without feature maps.
        backgrounds: Names of the backgrounds that `make` knows.
        masks: Kinds of masks that `make` knows, the main one first.
        recipe: How the network is trained.
        prior: Prior of the AGOP methods: "training" (collected by the hook) or "checkpoint" (one pass at the final
            weights).
        learned: Validation accuracy below which a network hasn't learned the task.
        snapshot_images: Number of validation images on which each snapshot is scored.
        grids: Number of 2×2 grids of test images that are scored as well; the network must accept images of twice the
            size.
        threads: Threads per process. Fixed, because the last digits of a training depend on it.
        black: Value of black in each channel of a normalised image.
        white: Value of white in each channel of a normalised image.
        task: The scenario whose data it uses; empty if it has its own. Scenarios of one task differ in their network.
        network_name: Short name of the network: cnn, mlp, llr …
        classes: Names of the classes.
        description: A sentence about network and data for the report, if a run can choose them.
        configure: Function of a run's options → the scenario with these options; None if it has no options.

    Example:
        >>> scenario = agop.bench.scenarios.get("linear")
        >>> train, validation, test = scenario.splits("uncorrelated", seed=0)
    """

    name: str
    benchmark: str
    make: Callable[[str, int, str], Splits]
    network: Callable[[], nn.Module]
    layer: str | None
    backgrounds: tuple[str, ...]
    masks: tuple[str, ...] = ("true",)
    recipe: Recipe = Recipe()
    prior: str = "training"
    learned: float = 0.0
    snapshot_images: int = 1000
    grids: int = 0
    threads: int = 1
    black: tuple[float, ...] | None = None
    white: tuple[float, ...] | None = None
    task: str = ""
    network_name: str = ""
    classes: tuple[str, ...] = ()
    description: str | None = None
    configure: Callable[[Mapping[str, Any]], Scenario] | None = None

    def with_options(self, options: Mapping[str, Any]) -> Scenario:
        """The scenario with a run's options. Raises if it has none."""
        if self.configure is not None:
            return self.configure(options)
        if options:
            raise InputError(f"{self.name} has no options: remove {', '.join(options)}")
        return self

    def splits(self, background: str, seed: int, masks: str | None = None) -> Splits:
        """Training, validation and test data, by default with the first kind of masks, also called "own" or "true"."""
        masks = self.masks[0] if masks in (None, "own", "true") else masks
        if background not in self.backgrounds:
            raise unknown_name_error("background", background, self.backgrounds)
        if masks not in self.masks:
            raise unknown_name_error("kind of mask", masks, self.masks)
        return self.make(background, seed, masks)


def options_of(kind: type[OptionsType], options: Mapping[str, Any]) -> OptionsType:
    """A scenario's options as an instance of their dataclass. Raises UnknownNameError for other names."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # any dataclass
    unknown = options.keys() - set(names)
    if unknown:
        raise unknown_name_error("option", min(unknown), names)
    return kind(**options)


def register(scenario: Scenario) -> Scenario:
    """Register a scenario under its name, so that `agop bench` can run it.

    Args:
        scenario: The scenario.

    Returns:
        The scenario.

    Raises:
        InputError: The name is taken.

    Example:
        >>> splits = lambda background, seed, masks: (train, validation, test)
        >>> register(Scenario("mine", "xai-tris", splits, agop.bench.CNN8by8, "conv3", ("plain",)))
    """
    registry.add(scenario.name, scenario)
    return scenario


# Values of black and white in each channel.
BLACK, WHITE = Preprocessing(**IMAGENET).extremes  # type: ignore[arg-type]  # mean and std


def normalised(images: NDArray[np.uint8]) -> Tensor:
    """Images (N,3,S,S), normalised, from bytes (N,S,S,3)."""
    mean, std = (torch.tensor(IMAGENET[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std


def selected(
    parts: Sequence[Indices], images: NDArray[Any], labels: Indices, masks: Mapping[str, NDArray[Any]], main: str
) -> list[Split]:
    """The splits of the rows in each part. `masks` are by kind, `main` is the kind in `Split.masks`.

    Images are bytes (N,S,S,3), which are normalised, or grey floats (N,S,S).
    """

    def split(rows: Indices) -> Split:
        own = images[rows]
        tensors = normalised(own) if own.ndim == 4 else torch.from_numpy(own).float()[:, None]
        by_kind = {kind: torch.from_numpy(of_kind[rows]) for kind, of_kind in masks.items()}
        return Split(tensors, torch.from_numpy(labels[rows]), by_kind.pop(main), by_kind)

    return [split(part) for part in parts]


# Images per Fourier transform: complex numbers of all images at once would need several times the memory.
_BATCH = 1000


def pink_noise(count: int, size: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Noise (count,size,size) whose amplitude falls with 1/f. Each image has mean 0 and standard deviation 1."""
    frequencies = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)).astype(np.float32)
    frequencies[0, 0] = np.inf  # mean 0
    noise = np.empty((count, size, size), np.float32)
    for start in range(0, count, _BATCH):
        white = random.standard_normal((min(_BATCH, count - start), size, size), dtype=np.float32)
        pink = np.fft.irfft2(np.fft.rfft2(white) / frequencies, s=(size, size))
        noise[start : start + _BATCH] = pink / pink.std(axis=(1, 2), keepdims=True)
    return noise


# With fewer, a split of a tenth could have none.
FEWEST = 10


@lru_cache(maxsize=1)  # the seeds of a process share the photographs: decoding thousands of files takes longer
def photographs(path: str | None, size: int, most: int) -> NDArray[np.uint8]:
    """Photographs (N,size,size,3) for the background "photos"."""
    if path is None:
        raise InputError('photographs are missing: pass photos=FOLDER, or use "pink-noise", their stand-in')
    return read_photos(Path(path), size, most)


def shared_out(pool: int, parts: Sequence[Indices], random: np.random.Generator) -> Indices:
    """An item of the pool (N,) for each sample; no item is in two parts.

    `parts` are the samples of each split. A part gets a share of the pool in proportion to its size, and uses an item
    again only after all items of its share.
    """
    if pool < FEWEST:
        raise InputError(f"photographs or digits: {pool}, too few for three splits: use {FEWEST} or more")
    sizes = np.array([len(part) for part in parts])
    ends = (pool * sizes.cumsum() / sizes.sum()).round().astype(int)
    shares = np.split(random.permutation(pool), ends[:-1])
    chosen = np.empty(sizes.sum(), np.int64)
    for part, share in zip(parts, shares, strict=True):
        chosen[part] = np.resize(share, len(part))
    return chosen


# MNIST's size. Glyphs are drawn larger, then reduced, so that their edges are smooth.
_SIZE, _ENLARGED = 28, 4
_FONT_SIZE = 80
_MOST_ROTATION, _MOST_SHEAR, _MOST_STROKE = math.radians(20), 0.25, 4


def drawn_digits(count: int, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Digits (count,28,28), white on black, as many of each, and labels (count,). Rotation, shear and weight vary."""
    labels = np.arange(count) % 10
    glyphs = {(digit, stroke): _glyph(digit, stroke) for digit in range(10) for stroke in range(_MOST_STROKE + 1)}
    strokes = random.integers(0, _MOST_STROKE + 1, count)
    angles = random.uniform(-_MOST_ROTATION, _MOST_ROTATION, count)
    shears = random.uniform(-_MOST_SHEAR, _MOST_SHEAR, count)
    images = [
        _transformed(glyphs[int(label), int(stroke)], angle, shear)
        for label, stroke, angle, shear in zip(labels, strokes, angles, shears, strict=True)
    ]
    return np.stack(images), labels.astype(np.uint8)


def _glyph(digit: int, stroke: int) -> Image.Image:
    """One digit, large and centred."""
    side = _SIZE * _ENLARGED
    image = Image.new("L", (side, side))
    font = ImageFont.load_default(size=_FONT_SIZE)
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = draw.textbbox((0, 0), str(digit), font=font, stroke_width=stroke)
    corner = ((side - left - right) / 2, (side - top - bottom) / 2)
    draw.text(corner, str(digit), fill=255, font=font, stroke_width=stroke)
    return image


def _transformed(glyph: Image.Image, angle: float, shear: float) -> NDArray[np.uint8]:
    """The glyph (28,28), rotated and sheared around its centre."""
    cosine, sine, centre = math.cos(angle), math.sin(angle), glyph.width / 2
    a, b, c, d = cosine, shear * cosine - sine, sine, shear * sine + cosine
    matrix = (a, b, centre - (a + b) * centre, c, d, centre - (c + d) * centre)
    turned = glyph.transform(glyph.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    return np.asarray(turned.reduce(_ENLARGED))
