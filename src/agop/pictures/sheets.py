"""Sheets: an image and the maps over it, side by side with captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.heat import Picture, heat, overlay

_SMALLEST, _FEW = 192, 32
_GAP, _CAPTION = 8, 22


def tile(picture: Picture, strength: NDArray[np.floating], colouring: Colouring) -> Picture:
    """A map (H,W), as from `Colouring.strengths`, over its image (H,W,3).

    Over an image of few pixels the opaque map alone: an overlay of large pixels shows neither.
    """
    if colouring.opacity == 1 and max(picture.shape[:2]) < _FEW:
        return heat(strength, 1.0, colouring.colours)
    return overlay(picture, strength, 1.0, colouring.opacity, colouring.colours)


def enlarged(picture: Picture) -> Image.Image:
    """The image; a small one is enlarged by a whole factor, so that its pixels can be seen."""
    image = Image.fromarray(picture)
    factor = max(1, -(-_SMALLEST // max(image.size)))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def sheet(
    picture: Picture,
    maps: Mapping[str, NDArray[np.floating]],
    caption: str = "image",
    colouring: Colouring = DEFAULT_COLOURING,
) -> Image.Image:
    """The image and each method's map over it, side by side, each below its caption."""
    strengths, _ = colouring.strengths(maps)
    panels = [(caption, enlarged(picture))]
    for name, strength in strengths.items():
        panels.append((label(name, maps[name]), enlarged(tile(picture, strength, colouring))))
    return side_by_side(panels)


def label(name: str, saliency: NDArray[np.floating]) -> str:
    """A method's name, with "(all zero)", "(constant)" or "(not finite)" if its map is."""
    if not np.isfinite(saliency).all():
        return f"{name} (not finite)"
    if not saliency.any():
        return f"{name} (all zero)"
    return f"{name} (constant)" if saliency.min() == saliency.max() else name


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
