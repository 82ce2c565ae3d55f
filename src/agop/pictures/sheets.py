"""Overlays and side-by-side sheets as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from agop.pictures.heat import Picture, heat

_SMALLEST, _FEW = 192, 32
_GAP, _CAPTION = 8, 22


def shares(maps: Mapping[str, NDArray[np.floating]]) -> tuple[dict[str, NDArray[np.float64]], float]:
    """Maps (H,W) on one scale, as the root of share / top in 0..1, and the top: the largest share a pixel has in any.

    A pixel's share is its part of its map's sum. A map that is all zero or not finite becomes zeros.
    """
    parts = {name: _share(saliency) for name, saliency in maps.items()}
    top = max((float(part.max(initial=0.0)) for part in parts.values()), default=0.0)
    return {name: np.sqrt(part / top) if top > 0 else part for name, part in parts.items()}, top


def _share(saliency: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(saliency, dtype=np.float64)
    largest = values.max(initial=0.0)
    if not np.isfinite(values).all() or largest <= 0:
        return np.zeros_like(values)
    # By the largest first: the sum of large values may overflow, and a sum of tiny ones may vanish.
    values = values.clip(min=0) / largest
    return np.asarray(values / values.sum(), dtype=np.float64)


def shaded(picture: Picture, place: NDArray[np.floating]) -> Picture:
    """A map on a common scale (H,W), in 0..1 as `shares` gives it, over its picture (H,W,3).

    Over a picture of a few pixels the map alone, which would be all one saw of it.
    """
    colours = heat(place, 1.0)
    if max(picture.shape[:2]) < _FEW:
        return colours
    opacity = 0.15 + 0.85 * place[..., None]
    grey = picture.mean(axis=-1, keepdims=True) * 0.7
    return np.asarray(((1 - opacity) * grey + opacity * colours).round(), dtype=np.uint8)


def shown(picture: Picture, saliency: NDArray[np.floating]) -> Image.Image:
    """The map over its picture, its largest value the brightest."""
    return enlarged(shaded(picture, shares({"map": saliency})[0]["map"]))


def enlarged(picture: Picture) -> Image.Image:
    """The picture, small ones by a whole factor so that pixels can be seen."""
    image = Image.fromarray(picture)
    factor = max(1, -(-_SMALLEST // max(image.size)))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def sheet(picture: Picture, maps: Mapping[str, NDArray[np.floating]], caption: str = "picture") -> Image.Image:
    """The picture and each method's map over it, side by side, all on one scale."""
    places, _ = shares(maps)
    panels = [(caption, enlarged(picture))]
    panels += [(told(name, maps[name]), enlarged(shaded(picture, place))) for name, place in places.items()]
    return side_by_side(panels)


def told(name: str, saliency: NDArray[np.floating]) -> str:
    """A method's name, with the reason if there is nothing to see of its map."""
    if not np.isfinite(saliency).all():
        return f"{name} (not finite)"
    return name if saliency.any() else f"{name} (all zero)"


def side_by_side(panels: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Panels of equal size in a row under their captions."""
    width, height = panels[0][1].size
    font = ImageFont.load_default(size=13)
    page = Image.new("RGB", (len(panels) * (width + _GAP) - _GAP, height + _CAPTION), "white")
    draw = ImageDraw.Draw(page)
    for place, (caption, panel) in enumerate(panels):
        left = place * (width + _GAP)
        draw.text((left + 2, 3), _fitting(caption, width, font), fill="black", font=font)
        page.paste(panel, (left, _CAPTION))
    return page


def stacked(rows: Sequence[Image.Image]) -> Image.Image:
    """Rows under one another."""
    page = Image.new("RGB", (max(row.width for row in rows), sum(row.height + _GAP for row in rows) - _GAP), "white")
    top = 0
    for row in rows:
        page.paste(row, (0, top))
        top += row.height + _GAP
    return page


def _fitting(caption: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    while caption and font.getlength(caption) > width:
        caption = caption[:-2].rstrip("…") + "…" if len(caption) > 2 else ""
    return caption
