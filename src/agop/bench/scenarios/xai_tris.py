"""XAI-TRIS: tetrominoes in noise at 8×8, and large smooth ones in noise or on photographs at 64×64."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import agop.bench.scenarios.base as scenario
from agop.bench.networks import CNN64, LLR, CNN8by8, MLP8by8
from agop.bench.scenarios.base import Indices, Recipe, Scenario, Splits, register, registry, selected
from agop.errors import InputError

Floats = NDArray[np.floating]
_T = np.array([[1, 0], [1, 1], [1, 0]], dtype=np.float32)
_L = np.array([[1, 0], [1, 0], [1, 1]], dtype=np.float32)


def _fields(side: int, scale: int) -> Floats:
    """Two patterns (2,side,side): T at its place, and L at its place. A shape's blocks have `scale` pixels a side."""
    blocks = np.zeros((2, side // scale, side // scale), np.float32)
    blocks[0, 1:4, 1:3], blocks[1, 4:7, 5:7] = _T, _L
    return np.asarray(np.kron(blocks, np.ones((scale, scale), np.float32)))


def _fixed(fields: Floats, labels: Indices, _: np.random.Generator) -> Floats:
    """Class 0 has the T, class 1 the L, each at its fixed position."""
    return np.asarray(fields[labels])


def _moving(fields: Floats, labels: Indices, random: np.random.Generator) -> Floats:
    """The class's shape, rotated by a multiple of 90°, at any position where it fits."""
    turns = random.integers(0, 4, len(labels))
    positions = random.random(len(labels))
    patterns = np.empty((len(labels), *fields.shape[1:]), np.float32)
    for label, field in enumerate(fields):
        upright = field[np.ix_(field.any(axis=1), field.any(axis=0))]
        for turn in range(4):
            turned = (labels == label) & (turns == turn)
            patterns[turned] = _placed(np.rot90(upright, turn), positions[turned], len(field))
    return patterns


def _placed(shape: Floats, positions: NDArray[np.float64], side: int) -> Floats:
    """Patterns (N,side,side) with the shape. Positions in 0..1 are all places where it fits, in reading order."""
    rows, columns = (side - length + 1 for length in shape.shape)
    corners = divmod((positions * rows * columns).astype(int), columns)
    # Every pixel reads its value from the shape with a margin of one pixel, which stands for all pixels outside.
    padded = np.pad(shape, 1)
    row, column = (
        np.clip(np.arange(side) - start[:, None], -1, length) + 1
        for start, length in zip(corners, shape.shape, strict=True)
    )
    return np.asarray(padded[row[:, :, None], column[:, None, :]])


def _signed(fields: Floats, labels: Indices, random: np.random.Generator) -> Floats:
    """Both shapes, each with a random sign: equal signs are class 0, unequal signs class 1."""
    first = random.choice([-1.0, 1.0], len(labels)).astype(np.float32)
    second = np.where(labels == 0, first, -first)
    t, l_shape = fields
    return np.asarray(first[:, None, None] * t + second[:, None, None] * l_shape)


# Scenario → patterns (N,side,side) of the labels, from the two fields.
PATTERNS: dict[str, Callable[[Floats, Indices, np.random.Generator], Floats]] = {
    "linear": _fixed,
    "multiplicative": _fixed,
    "translations_rotations": _moving,
    "xor": _signed,
}


def _classes(task: str) -> tuple[str, str]:
    return ("equal signs", "unequal signs") if task == "xor" else ("T", "L")


def smoothed(images: Floats, sigma: float) -> Floats:
    """Images (N,S,S) after a Gaussian filter, truncated at four sigma, with mirrored edges.

    As `scipy.ndimage.gaussian_filter`, whose last bits are others: the published results have these.
    """
    side, reach = images.shape[-1], int(4 * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    matrix = np.zeros((side, side))  # of the filter along one side
    for row in range(side):
        mirrored = (row + offsets) % (2 * side)
        np.add.at(matrix[row], np.minimum(mirrored, 2 * side - 1 - mirrored), weights / weights.sum())
    matrix = matrix.astype(images.dtype)
    return np.asarray(matrix @ images @ matrix.T)


def mixed(patterns: Floats, noise: Floats, alpha: float, *, product: bool) -> Floats:
    """Signal and noise, each normalised over all images, mixed, then scaled to at most 1."""
    noise = noise / _norm(noise)
    if product:
        carrier = 1 - alpha * patterns
        images = carrier / _norm(carrier) * noise
    else:
        images = alpha * patterns / _norm(patterns) + (1 - alpha) * noise
    return np.asarray(images / np.abs(images).max())


def _norm(values: Floats) -> float:
    """Frobenius norm. float64: a float32 sum of 41 million squares loses digits."""
    return float(np.sqrt(np.square(values).sum(dtype=np.float64)))


def stratified(count: int, random: np.random.Generator) -> list[Indices]:
    """Indices of training, validation and test images, 80/10/10, where labels alternate between two classes."""
    pairs = random.permutation(count // 2)  # whole pairs: every split has as many images of each class
    order = np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)
    return np.split(order, [8 * len(order) // 10, 9 * len(order) // 10])


def _truths(task: str, own: NDArray[np.bool_], shapes: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Masks (N,S,S) by kind: the image's own shapes, and the published ones, both shapes (2,S,S) unless they move."""
    moves = task == "translations_rotations"
    return {"own": own, "union": own if moves else np.broadcast_to(shapes.any(axis=0), own.shape)}


_FIELDS, _IMAGES = _fields(side=8, scale=1), 10_000
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
    """Tetrominoes in noise: 8,000, 1,000 and 1,000 images (N,1,8,8), half of each class.

    Clark, Wilming and Haufe, "XAI-TRIS: non-linear image benchmarks to quantify false positive post-hoc attribution of
    feature importance", 2024. Kinds of masks:

    - "own" (or "true"): the shapes in the image;
    - "union": both shapes in every image, at their places, as the benchmark publishes it. A missing shape is evidence
      for the other class. Shapes that move have no such place: "union" is "own".
    - "signed": the masks of xor keep the shapes' signs (−1, 0, 1), as in the public generator. Scored as ground truth,
      opposite signs cancel: this explains the negative scores in the paper's XOR table.

    Args:
        scenario: "linear", "multiplicative", "translations_rotations" or "xor".
        background: "uncorrelated" or "correlated" noise.
        seed: Seed of all random numbers.
        masks: Kind of the main masks. Splits with "own" masks have "union" masks in `others`, and vice versa.

    Returns:
        Training, validation and test data, each a `Split`.

    Raises:
        UnknownNameError: A name isn't one of these.

    Example:
        >>> train, validation, test = agop.bench.scenarios.xai_tris("xor", "correlated", seed=1)
        >>> agop.metrics.energy(agop.explain(model, test.images, "vanilla"), test.masks).mean()
    """
    return registry.get(scenario).splits(background, seed, masks)


def _make(task: str, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    labels = np.arange(_IMAGES) % 2
    patterns = PATTERNS[task](_FIELDS, labels, random).astype(np.float64)
    noise: Floats = random.normal(0, 0.5, patterns.shape)
    if background == "correlated":
        noise = smoothed(noise, sigma=3)
    alpha = _ALPHA[task][BACKGROUNDS.index(background)]
    images = mixed(patterns, noise, alpha, product=task == "multiplicative")
    truths = {"signed": patterns.astype(np.int8)}
    if masks != "signed":
        truths = _truths(task, patterns != 0, _FIELDS != 0)
    train, validation, test = selected(stratified(_IMAGES, random), images, labels, truths, masks)
    return train, validation, test


_NETWORKS = {"cnn": CNN8by8, "mlp": MLP8by8, "llr": LLR}
# The best validation accuracy of MLP8by8 and LLR on seeds that no result uses.
_TUNED = {
    ("mlp", "translations_rotations"): Recipe(learning_rate=3e-3),
    ("llr", "linear"): Recipe(learning_rate=3e-2, weight_decay=0.0),
}
for _name, _task in (*product(("cnn", "mlp"), _ALPHA), ("llr", "linear")):
    register(
        Scenario(
            _task if _name == "cnn" else f"{_task}-{_name}",
            "xai-tris",
            partial(_make, _task),
            _NETWORKS[_name],
            layer="conv3" if _name == "cnn" else None,
            backgrounds=BACKGROUNDS,
            masks=("own", "union", "signed"),
            recipe=_TUNED.get((_name, _task), Recipe()),
            classes=_classes(_task),
            learned=_LEARNED,
            snapshot_images=250,
            task="" if _name == "cnn" else _task,
            network_name=_name,
        )
    )


_SIDE = 64
# Pink noise is a stand-in for photographs.
BACKGROUNDS_64 = ("white", "correlated", "photos", "pink-noise")
# Weight of the signal in an image with each background.
_ALPHA_64 = {
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
# The signs of xor are learned late: with the lower rate, a training of 12 epochs ends before that.
_RECIPES = {task: replace(_SHORT, learning_rate=5e-3) if task == "xor" else _SHORT for task in _ALPHA_64}


@dataclass(frozen=True)
class Options:
    """Options of a run at 64×64. `photos` is a folder or file of photographs, which the background "photos" needs."""

    photos: str | None = None
    samples: int = 10_000

    def __post_init__(self) -> None:
        if self.samples < 2 * scenario.FEWEST or self.samples % 2:
            raise InputError(f"samples is {self.samples}: pass an even number, {2 * scenario.FEWEST} or more")


def xai_tris_64(task: str, **options: Any) -> Scenario:
    """A scenario with options, the fields of `Options`."""
    settings, recipe = scenario.options_of(Options, options), _RECIPES[task]
    photos = "pink noise is a stand-in for photographs"
    if settings.photos:
        photos = f"photographs from {Path(settings.photos).name}"
    return Scenario(
        f"{task}-64",
        "xai-tris-64",
        partial(_make_64, task, settings),
        CNN64,
        layer="conv4",
        backgrounds=BACKGROUNDS_64,
        masks=("own", "union"),
        recipe=recipe,
        prior="checkpoint",
        learned=_LEARNED,
        snapshot_images=100,
        network_name="cnn",
        classes=_classes(task),
        description=f"CNN64, trained from scratch: {recipe}, best of {recipe.epochs} epochs, on {settings.samples:,} "
        f"images at {_SIDE}×{_SIDE}; {photos}.",
        configure=lambda options: xai_tris_64(task, **options),
    )


def _make_64(task: str, options: Options, background: str, seed: int, masks: str) -> Splits:
    random = np.random.default_rng(seed)
    labels = np.arange(options.samples) % 2
    parts = stratified(options.samples, random)
    noise = _background(background, options, parts, random)
    fields = _fields(_SIDE, scale=4 if task == "translations_rotations" else 8)
    patterns = smoothed(PATTERNS[task](fields, labels, random), _PATTERN_SIGMA)
    alpha = _ALPHA_64[task][BACKGROUNDS_64.index(background)]
    images = mixed(patterns, noise, alpha, product=task == "multiplicative")
    shapes = smoothed(fields, _PATTERN_SIGMA) >= _IN_MASK
    truths = _truths(task, np.abs(patterns) >= _IN_MASK, shapes)
    train, validation, test = selected(parts, images, labels, truths, masks)
    return train, validation, test


def _background(name: str, options: Options, parts: list[Indices], random: np.random.Generator) -> NDArray[np.float32]:
    """Backgrounds (N,64,64) with mean 0, photographs in grey. Those in different splits are different."""
    if name == "photos":
        photos = scenario.photographs(options.photos, _SIDE, options.samples)
        grey = photos @ np.array([0.299, 0.587, 0.114], np.float32)
        return np.asarray(grey - grey.mean(axis=(1, 2), keepdims=True))[scenario.shared_out(len(grey), parts, random)]
    if name == "pink-noise":
        return scenario.pink_noise(options.samples, _SIDE, random)
    noise = random.standard_normal((options.samples, _SIDE, _SIDE), dtype=np.float32)
    return noise if name == "white" else smoothed(noise, _BACKGROUND_SIGMA)


for _task in _ALPHA_64:
    register(xai_tris_64(_task))
