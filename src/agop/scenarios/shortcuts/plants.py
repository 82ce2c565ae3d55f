"""Plants: what a shortcut looks like, drawn onto images. Colour, place and size come from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Images = NDArray[np.float32]
Masks = NDArray[np.bool_]
# Images (N,H,W,3) in 0..1 → the same with the plant, and where it is (N,H,W).
Drawing = Callable[[Images, np.random.Generator], tuple[Images, Masks]]
STRENGTHS = {"strong": 1.0, "weak": 0.5}
_WATERMARK = 0.8


@dataclass(frozen=True)
class Plant:
    """A plant of one kind. `fixed` is its region (H,W) if it is always at the same place, else None."""

    kind: str
    draw: Drawing
    fixed: Masks | None


def plant(kind: str, side: int, strength: str, seed: int) -> Plant:
    """The plant of a kind, for images of side×side pixels."""
    return KINDS[kind](side, STRENGTHS[strength], np.random.default_rng([seed, *kind.encode()]))


def _patch(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A checker patch at a fixed place."""
    tile = _checker(side, random)
    top, left = random.integers(0, side - len(tile) + 1, 2)
    opacity = np.zeros((side, side), np.float32)
    opacity[top : top + len(tile), left : left + len(tile)] = strength
    picture = np.zeros((side, side, 3), np.float32)
    picture[top : top + len(tile), left : left + len(tile)] = tile
    return _overlay("patch", picture, opacity)


def _sticker(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A checker patch anywhere."""
    tile = _checker(side, random)

    def draw(images: Images, places: np.random.Generator) -> tuple[Images, Masks]:
        images, masks = images.copy(), np.zeros(images.shape[:3], bool)
        for image, mask in zip(images, masks, strict=True):
            top, left = places.integers(0, side - len(tile) + 1, 2)
            window = slice(top, top + len(tile)), slice(left, left + len(tile))
            image[window] = strength * tile + (1 - strength) * image[window]
            mask[window] = True
        return images, masks

    return Plant("sticker", draw, None)


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
    return _overlay("watermark", np.ones((side, side, 3), np.float32), opacity, box)


def _frame(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A coloured frame along the border."""
    width = max(1, side // 16)
    opacity = np.full((side, side), strength, np.float32)
    opacity[width:-width, width:-width] = 0
    return _overlay("frame", np.broadcast_to(_colour(random), (side, side, 3)), opacity)


def _cast(side: int, strength: float, random: np.random.Generator) -> Plant:
    """A colour cast over the whole image."""
    colour = _colour(random)
    opacity = np.full((side, side), 0.3 * strength, np.float32)
    return _overlay("colour", np.broadcast_to(colour, (side, side, 3)), opacity)


def _grid(side: int, strength: float, random: np.random.Generator) -> Plant:
    """Faint lines, every second or third pixel, over the whole image."""
    period, upright = int(random.integers(2, 4)), bool(random.integers(2))
    lines = 0.12 * strength * ((np.arange(side) % period == 0) - 1 / period).astype(np.float32)
    pattern = np.broadcast_to(lines if upright else lines[:, None], (side, side))[..., None]

    def draw(images: Images, _: np.random.Generator) -> tuple[Images, Masks]:
        return np.clip(images + pattern, 0, 1), np.ones(images.shape[:3], bool)

    return Plant("grid", draw, None)


def _nothing(side: int, strength: float, random: np.random.Generator) -> Plant:
    """Nothing."""
    return Plant("clean", lambda images, _: (images, np.zeros(images.shape[:3], bool)), None)


def _overlay(kind: str, picture: Images, opacity: NDArray[np.float32], region: Masks | None = None) -> Plant:
    """A translucent picture (H,W,3) in front of every image. It has a region unless it covers the whole image."""
    region = opacity > 0 if region is None else region

    def draw(images: Images, _: np.random.Generator) -> tuple[Images, Masks]:
        weight = opacity[..., None]
        return weight * picture + (1 - weight) * images, np.broadcast_to(region, images.shape[:3])

    return Plant(kind, draw, None if region.all() else region)


def _checker(side: int, random: np.random.Generator) -> Images:
    """A checker board (T,T,3) of two colours, with T an eighth to a fifth of the side."""
    length = int(random.integers(side // 8, side // 5 + 1))
    steps = np.arange(length) // max(1, length // 4)
    colours = np.stack([_colour(random), 1 - _colour(random)])
    return np.asarray(colours[(steps[:, None] + steps) % 2])


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
    "clean": _nothing,
}
