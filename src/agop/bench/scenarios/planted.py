"""Tasks with a planted shortcut: something beside the object that goes with a class."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from agop.bench.scenarios.base import Split, drawn_digits, normalised, pink_noise, selected
from agop.errors import InputError
from agop.images.datasets import batches, has_digits, read_digits, read_folder
from agop.images.files import ClassFolders
from agop.images.preprocessing import Preprocessing

Bytes = NDArray[np.uint8]
Images = NDArray[np.float32]
Masks = NDArray[np.bool_]
# Images (N,H,W,3) in 0..1 → the same with the plant, and where it is (N,H,W).
Drawing = Callable[[Images, np.random.Generator], tuple[Images, Masks]]
# Share of images with the plant: of the class it goes with, and of each other class.
PREVALENCES = {"confounder": (0.8, 0.2), "balanced": (0.5, 0.5), "none": (0.0, 0.0)}
STRENGTHS = {"strong": 1.0, "weak": 0.5}
_TRAINING, _VALIDATION = 0.65, 0.05
# Images of a class.
_FEWEST = 60
_DRAWN = 8000
_WATERMARK = 0.8


@dataclass(frozen=True)
class Case:
    """One model of the benchmark: a kind of plant, how often each class has it, how strong it is, and a seed."""

    kind: str
    prevalence: str
    strength: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the case's folder."""
        return f"{self.kind}-{self.prevalence}-{self.strength}-{self.seed:03d}"


@dataclass(frozen=True)
class Source:
    """Where images come from: a path (None: drawn digits), their side, classes per task, and images per task."""

    data: str | None = None
    side: int = 32
    classes: int = 5
    samples: int = 5000
    # The classes of every task; by default they are drawn.
    labels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"classes is {self.classes}: pass 2 or more")
        if self.samples < _FEWEST * self.classes:
            raise InputError(f"samples is {self.samples}: pass {_FEWEST} or more per class")
        if twice := [label for label in self.labels if self.labels.count(label) > 1]:
            raise InputError(f"label {twice[0]} appears twice: pass each --label once")


@dataclass(frozen=True)
class Plant:
    """What is planted. `fixed` is its region (H,W) if it is always at the same place, else None."""

    draw: Drawing
    fixed: Masks | None


@dataclass(frozen=True)
class PlantedTask:
    """Training, validation and test data, and all test images without and with the plant.

    `target` is the class that the plant goes with. Masks are true where the plant is.
    """

    training: Split
    validation: Split
    test: Split
    without: Tensor
    planted: Tensor
    target: int
    plant: Plant


def planted_task(case: Case, source: Source) -> PlantedTask:
    """The data of a case."""
    random = np.random.default_rng([case.seed, source.classes, *case.kind.encode()])
    images, labels = _some_classes(source, random)
    target = int(random.integers(source.classes))
    thing = plant(case.kind, source.side, case.strength, case.seed)
    drawn, masks = thing.draw(images.astype(np.float32) / np.float32(255), random)
    planted = (255 * drawn).round().astype(np.uint8)
    has = random.random(len(labels)) < np.where(labels == target, *PREVALENCES[case.prevalence])
    mixed = np.where(has[:, None, None, None], planted, images)
    ends = (np.array([_TRAINING, _TRAINING + _VALIDATION]) * len(labels)).astype(int)
    truths = {"plant": masks & has[:, None, None]}
    training, validation, test = selected(np.split(np.arange(len(labels)), ends), mixed, labels, truths, "plant")
    without, with_plant = normalised(images[ends[1] :]), normalised(planted[ends[1] :])
    return PlantedTask(training, validation, test, without, with_plant, target, thing)


def _some_classes(source: Source, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N,S,S,3) in random order and labels (N,) of some classes, as many of each."""
    images, labels = labelled_images(None if source.data is None else Path(source.data), source.side)
    names = np.unique(labels)
    if len(names) < source.classes:
        raise InputError(f"the images have {len(names)} classes, fewer than {source.classes}: pass a smaller --classes")
    chosen = np.array(source.labels) if source.labels else random.choice(names, source.classes, replace=False)
    if unknown := set(chosen.tolist()) - set(names.tolist()):
        raise InputError(f"label {min(unknown)} isn't one of {', '.join(map(str, names))}: pass another --label")
    members = [random.permutation(np.flatnonzero(labels == name)) for name in chosen]
    count = min(source.samples // source.classes, *map(len, members))
    if count < _FEWEST:
        raise InputError(f"a class has {count} images: pass data with {_FEWEST} or more of each class")
    order = random.permutation(np.concatenate([part[:count] for part in members]))
    return images[order], np.searchsorted(np.sort(chosen), labels[order]).astype(np.int64)


@lru_cache(maxsize=1)  # the models of a process share the images
def labelled_images(path: Path | None, side: int) -> tuple[Bytes, NDArray[np.int64]]:
    """Images (N,side,side,3) and labels (N,). Without a path, digits are drawn on coloured noise."""
    if path is None:
        random = np.random.default_rng(0)
        digits, labels = drawn_digits(_DRAWN, random)
        cover = _resized(np.repeat(digits[..., None], 3, axis=3), side) / 255.0
        noise = pink_noise(3 * _DRAWN, side, random).reshape(_DRAWN, 3, side, side).transpose(0, 2, 3, 1)
        colours = random.uniform(80, 255, (_DRAWN, 1, 1, 3))
        colours[np.arange(_DRAWN), 0, 0, random.integers(0, 3, _DRAWN)] = 255  # a digit like the noise can't be read
        images = (cover * colours + (1 - cover) * (110 + 35 * noise)).clip(0, 255).astype(np.uint8)
        return images, labels.astype(np.int64)
    if path.is_dir() and batches(path):
        images, labels = read_folder(path)
    elif has_digits(path):
        digits, labels = read_digits(path)
        images = np.repeat(digits[..., None], 3, axis=3)
    else:
        parts = list(ClassFolders(path, Preprocessing((side, side))).batches(256))
        images = np.concatenate([np.asarray(part.mul(255).round().byte().permute(0, 2, 3, 1)) for part, _ in parts])
        return images, np.concatenate([np.asarray(labels) for _, labels in parts])
    return _resized(images, side), labels.astype(np.int64)


def _resized(images: Bytes, side: int) -> Bytes:
    """Images (N,side,side,3): padded if they are smaller, else scaled."""
    height, width = images.shape[1:3]
    if height != width:
        raise InputError(f"images have {height}×{width} pixels: use square images")
    if height <= side:
        before = (side - height) // 2
        margin = (before, side - height - before)
        return np.pad(images, ((0, 0), margin, margin, (0, 0)))
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in images])


def plant(kind: str, side: int, strength: str, seed: int) -> Plant:
    """The plant of a kind, for images of side×side pixels."""
    return KINDS[kind](side, STRENGTHS[strength], np.random.default_rng([seed, *kind.encode()]))


def _patch(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A checker patch at a fixed place."""
    tile = _checker(side, random)
    window = _window(tile, side, random)
    opacity, picture = np.zeros((side, side), np.float32), np.zeros((side, side, 3), np.float32)
    opacity[window], picture[window] = strength, tile
    return _overlay(picture, opacity)


def _sticker(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A checker patch anywhere."""
    tile = _checker(side, random)

    def draw(images: Images, places: np.random.Generator) -> tuple[Images, Masks]:
        images, masks = images.copy(), np.zeros(images.shape[:3], bool)
        for image, mask in zip(images, masks, strict=True):
            window = _window(tile, side, places)
            image[window] = strength * tile + (1 - strength) * image[window]
            mask[window] = True
        return images, masks

    return Plant(draw, None)


def _watermark(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A short text, bright and translucent, at a fixed place."""
    letters = "".join(random.choice(list("AEHKMNRSTX"), 3))
    font = ImageFont.load_default(size=max(8, side // 4))
    left, top, right, bottom = (int(end) for end in font.getbbox(letters))
    width, height = right - left, bottom - top
    image = Image.new("L", (side, side))
    corner = int(random.integers(0, max(1, side - width))), int(random.integers(0, max(1, side - height)))
    ImageDraw.Draw(image).text((corner[0] - left, corner[1] - top), letters, fill=255, font=font)
    opacity = np.float32(_WATERMARK * strength / 255) * np.asarray(image, np.float32)
    box = np.zeros((side, side), bool)
    box[corner[1] : corner[1] + height, corner[0] : corner[0] + width] = True
    return _overlay(np.ones(3, np.float32), opacity, box)


def _frame(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A coloured frame along the border."""
    width = max(1, side // 16)
    opacity = np.full((side, side), strength, np.float32)
    opacity[width:-width, width:-width] = 0
    return _overlay(_colour(random), opacity)


def _cast(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A colour cast over the whole image."""
    return _overlay(_colour(random), np.full((side, side), 0.3 * strength, np.float32))


def _grid(side: int, strength: float, random: np.random.Generator) -> Plant:
    """Faint lines, every second or third pixel, over the whole image."""
    period, upright = int(random.integers(2, 4)), bool(random.integers(2))
    lines = 0.12 * strength * ((np.arange(side) % period == 0) - 1 / period).astype(np.float32)
    pattern = np.broadcast_to(lines if upright else lines[:, None], (side, side))[..., None]

    def draw(images: Images, _: np.random.Generator) -> tuple[Images, Masks]:
        return np.clip(images + pattern, 0, 1), np.ones(images.shape[:3], bool)

    return Plant(draw, None)


def _overlay(picture: Images, opacity: NDArray[np.float32], region: Masks | None = None) -> Plant:
    """A translucent picture (H,W,3) or colour (3,) in front of every image, with a region unless it covers it all."""
    region = opacity > 0 if region is None else region

    def draw(images: Images, _: np.random.Generator) -> tuple[Images, Masks]:
        weight = opacity[..., None]
        return weight * picture + (1 - weight) * images, np.broadcast_to(region, images.shape[:3])

    return Plant(draw, None if region.all() else region)


def _checker(side: int, random: np.random.Generator) -> Images:
    """A checker board (T,T,3) of two colours, with T an eighth to a fifth of the side."""
    length = int(random.integers(side // 8, side // 5 + 1))
    steps = np.arange(length) // max(1, length // 4)
    colours = np.stack([_colour(random), 1 - _colour(random)])
    return np.asarray(colours[(steps[:, None] + steps) % 2])


def _window(tile: Images, side: int, random: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of a tile at a random place."""
    top, left = random.integers(0, side - len(tile) + 1, 2)
    return slice(top, top + len(tile)), slice(left, left + len(tile))


def _colour(random: np.random.Generator) -> NDArray[np.float32]:
    """A saturated colour (3,)."""
    colour = random.random(3, dtype=np.float32)
    return np.asarray((colour - colour.min()) / (colour.max() - colour.min()))


# Place in the image and appearance are fixed by the seed; a sticker's place is another in every image.
KINDS: dict[str, Callable[[int, float, np.random.Generator], Plant]] = {
    "patch": _patch,
    "sticker": _sticker,
    "watermark": _watermark,
    "frame": _frame,
    "colour": _cast,
    "grid": _grid,
    "clean": lambda *_: Plant(lambda images, _: (images, np.zeros(images.shape[:3], bool)), None),
}
