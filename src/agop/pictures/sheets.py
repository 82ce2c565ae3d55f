"""Maps over an image: one alone, or several side by side on one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from agop.pictures.heat import Picture, heat, overlay

_SMALLEST, _FEW = 192, 32
_GAP, _CAPTION = 8, 22


def shares(maps: Mapping[str, NDArray[np.floating]]) -> tuple[dict[str, NDArray[np.float64]], float]:
    """Maps (H,W) on one scale, as sqrt(share / top) in 0..1, and top, the largest share in all maps.

    A pixel's share is its value divided by its map's sum. A map that is all zero or not finite becomes zeros.
    """
    parts = {name: _share(saliency) for name, saliency in maps.items()}
    top = max((float(part.max(initial=0.0)) for part in parts.values()), default=0.0)
    return {name: np.sqrt(part / top) if top > 0 else part for name, part in parts.items()}, top


def _share(saliency: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(saliency, dtype=np.float64)
    largest = values.max(initial=0.0)
    if not np.isfinite(values).all() or largest <= 0:
        return np.zeros_like(values)
    # Divide by the largest value first: the sum of large values may overflow, that of tiny values underflow.
    values = values.clip(min=0) / largest
    return np.asarray(values / values.sum(), dtype=np.float64)


def tile(picture: Picture, place: NDArray[np.floating]) -> Picture:
    """A map on the common scale (H,W), as from `shares`, over its image (H,W,3).

    Over an image of few pixels the map alone: an overlay of large pixels shows neither.
    """
    return heat(place, 1.0) if max(picture.shape[:2]) < _FEW else overlay(picture, place, 1.0)


def large_tile(picture: Picture, saliency: NDArray[np.floating]) -> Image.Image:
    """One map over its image, its largest value the brightest, enlarged."""
    return enlarged(tile(picture, shares({"map": saliency})[0]["map"]))


def enlarged(picture: Picture) -> Image.Image:
    """The image; a small one is enlarged by a whole factor, so that its pixels can be seen."""
    image = Image.fromarray(picture)
    factor = max(1, -(-_SMALLEST // max(image.size)))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def sheet(picture: Picture, maps: Mapping[str, NDArray[np.floating]], caption: str = "image") -> Image.Image:
    """The image and each method's map over it, side by side, all maps on one scale."""
    places, _ = shares(maps)
    panels = [(caption, enlarged(picture))]
    panels += [(label(name, maps[name]), enlarged(tile(picture, place))) for name, place in places.items()]
    return side_by_side(panels)


def label(name: str, saliency: NDArray[np.floating]) -> str:
    """A method's name, with "(all zero)" or "(not finite)" if its map is."""
    if not np.isfinite(saliency).all():
        return f"{name} (not finite)"
    return name if saliency.any() else f"{name} (all zero)"


def side_by_side(panels: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Panels of equal size in a row, each below its caption."""
    width, height = panels[0][1].size
    font = ImageFont.load_default(size=13)
    page = Image.new("RGB", (len(panels) * (width + _GAP) - _GAP, height + _CAPTION), "white")
    draw = ImageDraw.Draw(page)
    for column, (caption, panel) in enumerate(panels):
        left = column * (width + _GAP)
        draw.text((left + 2, 3), _shortened(caption, width, font), fill="black", font=font)
        page.paste(panel, (left, _CAPTION))
    return page


def stacked(rows: Sequence[Image.Image]) -> Image.Image:
    """Rows, one below the other."""
    page = Image.new("RGB", (max(row.width for row in rows), sum(row.height + _GAP for row in rows) - _GAP), "white")
    top = 0
    for row in rows:
        page.paste(row, (0, top))
        top += row.height + _GAP
    return page


def _shortened(caption: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The caption, cut with an ellipsis to a width in pixels."""
    while caption and font.getlength(caption) > width:
        caption = caption[:-2].rstrip("…") + "…" if len(caption) > 2 else ""
    return caption
