"""Overlays and side-by-side sheets as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from agop.saliency import Picture, heat, overlay

_SMALLEST = 192
_GAP, _CAPTION = 8, 22


def shown(picture: Picture, saliency: NDArray[np.floating]) -> Image.Image:
    """The map over its picture; over one of a few pixels the map alone, which would be all one saw of it."""
    small = max(picture.shape[:2]) < 32
    return enlarged(heat(saliency) if small else overlay(picture, saliency))


def enlarged(picture: Picture) -> Image.Image:
    """The picture, small ones by a whole factor so that pixels can be seen."""
    image = Image.fromarray(picture)
    factor = max(1, -(-_SMALLEST // max(image.size)))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def sheet(picture: Picture, maps: Mapping[str, NDArray[np.floating]], caption: str = "picture") -> Image.Image:
    """The picture and each method's map over it, side by side, each scaled to its own maximum."""
    panels = [(caption, enlarged(picture))]
    for name, saliency in maps.items():
        panels.append((name if saliency.any() else f"{name} (all zero)", shown(picture, saliency)))
    return side_by_side(panels)


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
