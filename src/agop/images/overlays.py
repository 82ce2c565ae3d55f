"""Overlays: maps as colours, over their image, side by side, and inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from agop.errors import InputError
from agop.registry import unknown_name_error

if TYPE_CHECKING:
    from torch import Tensor

# Stops at equal distances. Inferno, viridis and gray grow lighter with the value; jet doesn't, but many know it.
COLOUR_MAPS = {
    "inferno": (
        (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
        (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
    ),
    "viridis": (
        (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
        (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
    ),
    "jet": (
        (0, 0, 128), (0, 0, 255), (0, 128, 255), (0, 255, 255), (128, 255, 128),
        (255, 255, 0), (255, 128, 0), (255, 0, 0), (128, 0, 0),
    ),
    "gray": ((0, 0, 0), (255, 255, 255)),
    # For maps with signs: negative values are blue, 0 is nearly white, positive ones are red.
    "RdBu_r": (
        (5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
        (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31),
    ),
}  # fmt: skip

DIVERGING = "RdBu_r"
Picture = NDArray[np.uint8]
Values = NDArray[np.floating]


def heat(saliency: Values, top: float | None = None, colours: str = "inferno") -> Picture:
    """Colours (H,W,3) of a map (H,W). `top` is the value of the brightest colour; default: the map's maximum."""
    stops = np.array(COLOUR_MAPS[colours], dtype=np.float64)
    top = float(saliency.max()) if top is None else top
    strength = np.clip(saliency / top, 0, 1) if top > 0 else np.zeros_like(saliency)
    steps = np.linspace(0, 1, len(stops))
    return _bytes(np.stack([np.interp(strength, steps, channel) for channel in stops.T], axis=-1))


def overlay(picture: Picture, strength: Values, opacity: float = 1.0, colours: str = "inferno") -> Picture:
    """Colours of a map (H,W) in 0..1 over its image (H,W,3), which is dimmed to gray. Larger values are more opaque.

    In diverging colours, 0.5 is no evidence and the most transparent.
    """
    size = np.abs(2 * strength - 1) if colours == DIVERGING else strength
    cover = opacity * (0.15 + 0.85 * size[..., None])
    gray = picture.mean(axis=-1, keepdims=True) * 0.7
    return _bytes((1 - cover) * gray + cover * heat(strength, 1.0, colours))


def pixels(images: Tensor, black: Sequence[float] | None = None, white: Sequence[float] | None = None) -> Picture:
    """Images (N,H,W,3) in bytes, of a model's inputs (N,C,H,W).

    `black` and `white` are the values per channel that become 0 and 255; default: the smallest and the largest value.
    """
    values = images.detach().cpu().double().numpy()
    low, high = (
        extreme(np.nan_to_num(values, nan=0.0)) if end is None else np.asarray(end, dtype=np.float64)[:, None, None]
        for end, extreme in ((black, np.min), (white, np.max))
    )
    scaled = np.nan_to_num((values - low) / np.maximum(high - low, 1e-12), nan=0.0).clip(0, 1)
    if images.shape[1] != 3:
        scaled = np.broadcast_to(scaled.mean(axis=1, keepdims=True), (len(scaled), 3, *scaled.shape[2:]))
    return _bytes(255 * scaled.transpose(0, 2, 3, 1))


def signed_picture(values: Values) -> Picture:
    """Picture (H,W,3) of signed values (C,H,W), gray where they are 0. The largest absolute value becomes white.

    Of other than one or three channels it shows their mean.
    """
    shown = values if len(values) in (1, 3) else values.mean(axis=0, keepdims=True)
    extreme = shown.flat[np.abs(shown).argmax()]
    scaled = 0.5 + 0.5 * shown / (extreme or 1)
    return _bytes(255 * np.broadcast_to(scaled, (3, *scaled.shape[1:])).transpose(1, 2, 0))


def _bytes(colours: Values) -> Picture:
    return np.asarray(colours.round(), dtype=np.uint8)


SCALES = ("own", "common")


@dataclass(frozen=True)
class Colouring:
    """How maps are drawn.

    Each map is clipped at its top value, see `top_value`. With the scale "own", the brightest colour of a map is its
    top value. With "common", a colour is a pixel's share of its map's sum, on a square-root axis that ends at the
    largest top value among the maps. `opacity` is that of the brightest colour over the image; `colours` is a name in
    COLOUR_MAPS. "RdBu_r" is diverging: for maps with signs, on their own scale.
    """

    scale: str = "own"
    percentile: float = 98.0
    opacity: float = 1.0
    colours: str = "inferno"

    def __post_init__(self) -> None:
        for kind, name, known in (("scale", self.scale, SCALES), ("colour map", self.colours, [*COLOUR_MAPS])):
            if name not in known:
                raise unknown_name_error(kind, name, known)
        if self.colours == DIVERGING and self.scale != "own":
            raise InputError(
                f"scale is {self.scale!r}: maps with signs, in the colours {DIVERGING}, have their own scale"
            )
        if not 0 < self.percentile <= 100:
            raise InputError(f"percentile is {self.percentile}: pass a number above 0, at most 100, for example 98")
        if not 0 <= self.opacity <= 1:
            raise InputError(f"opacity is {self.opacity}: pass a number from 0 to 1")

    def strengths(self, maps: Mapping[str, Values]) -> tuple[dict[str, NDArray[np.float64]], float]:
        """Maps (H,W) as positions 0..1 in the colours (0.5: diverging ones of 0), and what the brightest colour means.

        That is 1 on the own scale: the map's top value. On the common scale it is the largest share of a sum. It is 0
        if no map has colours: a map that is all zero or not finite becomes zeros.
        """
        sizes = {name: np.abs(saliency) if self.colours == DIVERGING else saliency for name, saliency in maps.items()}
        units = {name: _relative_to_maximum(saliency) for name, saliency in sizes.items()}
        tops = {name: top_value(unit, self.percentile) for name, unit in units.items()}
        own = {name: np.minimum(unit / tops[name], 1) if tops[name] > 0 else unit for name, unit in units.items()}
        if self.colours == DIVERGING:
            own = {name: 0.5 + 0.5 * np.sign(np.nan_to_num(maps[name])) * values for name, values in own.items()}
        if self.scale == "own":
            return own, float(any(top > 0 for top in tops.values()))
        shares = {name: tops[name] / unit.sum() if tops[name] > 0 else 0.0 for name, unit in units.items()}
        largest = max(shares.values(), default=0.0)
        return {n: np.sqrt(own[n] * shares[n] / largest) if largest > 0 else own[n] for n in own}, float(largest)


DEFAULT_COLOURING = Colouring()


def top_value(saliency: Values, percentile: float) -> float:
    """The value of the brightest colour: a map's pixels above it hold at most 100 − percentile percent of its sum.

    It is the smallest such value of the map (H,W), as in Captum's `outlier_perc`. So a pixel with more than the rest of
    the sum is never clipped, even if it is the only one. 0 for a map that is all zero or not finite.
    """
    values = np.sort(saliency, axis=None)
    sums = np.cumsum(_relative_to_maximum(values))
    return float(values[np.searchsorted(sums, sums[-1] * (percentile / 100))]) if sums[-1] > 0 else 0.0


def _relative_to_maximum(saliency: Values) -> NDArray[np.float64]:
    """The map divided by its maximum, so that no sum overflows or underflows; zeros if all zero or not finite."""
    values = np.asarray(saliency, dtype=np.float64)
    largest = values.max(initial=0.0)
    if not np.isfinite(values).all() or largest <= 0:
        return np.zeros_like(values)
    return np.asarray(values.clip(min=0) / largest)


# Larger images are sent as JPEG, so that fifty images by nine methods still fit in a page.
_LOSSLESS = 64


def has_few_pixels(picture: Picture) -> bool:
    """True for an image that a page enlarges: its pixels should stay sharp."""
    return max(picture.shape[:2]) <= _LOSSLESS


def data_uri(picture: Picture, side: int | None = None, quality: int = 92) -> str:
    """The image (H,W,3) as the address of an <img>. A larger one is scaled down to `side`."""
    image = Image.fromarray(picture)
    if side is not None:
        image.thumbnail((side, side))
    kind = "png" if has_few_pixels(picture) else "jpeg"
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=quality)  # a PNG has none
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


_SMALLEST, _FEW = 192, 32
_GAP, _CAPTION = 8, 22
_ROW = 6 * (224 + _GAP)  # six panels of 224 pixels fit on a screen


def tile(picture: Picture, strength: Values, colouring: Colouring) -> Picture:
    """A map (H,W), as from `Colouring.strengths`, over its image (H,W,3).

    Over an image of few pixels the opaque map alone: an overlay of large pixels shows neither.
    """
    if colouring.opacity == 1 and max(picture.shape[:2]) < _FEW:
        return heat(strength, 1.0, colouring.colours)
    return overlay(picture, strength, colouring.opacity, colouring.colours)


def enlarged(picture: Picture) -> Image.Image:
    """The image; a small one is enlarged by a whole factor, so that its pixels can be seen."""
    image = Image.fromarray(picture)
    factor = max(1, -(-_SMALLEST // max(image.size)))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def sheet(
    picture: Picture, maps: Mapping[str, Values], caption: str = "image", colouring: Colouring = DEFAULT_COLOURING
) -> Image.Image:
    """The image and each method's map over it, in rows, each below its caption."""
    strengths, _ = colouring.strengths(maps)
    panels = [(caption, enlarged(picture))]
    for name, strength in strengths.items():
        panels.append((label(name, maps[name]), enlarged(tile(picture, strength, colouring))))
    return in_rows(panels)


def label(name: str, saliency: Values) -> str:
    """A method's name, with "(all zero)", "(constant)" or "(not finite)" if its map is."""
    if not np.isfinite(saliency).all():
        return f"{name} (not finite)"
    if not saliency.any():
        return f"{name} (all zero)"
    return f"{name} (constant)" if saliency.min() == saliency.max() else name


def in_rows(panels: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Panels of equal size, each below its caption, in rows that a screen shows."""
    (width, height), font = panels[0][1].size, ImageFont.load_default(size=13)
    across, down = width + _GAP, height + _CAPTION + _GAP
    columns = min(len(panels), max(1, _ROW // across))
    page = Image.new("RGB", (columns * across - _GAP, -(-len(panels) // columns) * down - _GAP), "white")
    draw = ImageDraw.Draw(page)
    for place, (caption, panel) in enumerate(panels):
        left, top, text = place % columns * across, place // columns * down, caption
        while text and font.getlength(text) > width:  # cut with an ellipsis
            text = text[:-2].rstrip("…") + "…" if len(text) > 2 else ""
        draw.text((left + 2, top + 3), text, fill="black", font=font)
        page.paste(panel, (left, top + _CAPTION))
    return page
