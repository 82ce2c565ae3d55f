"""compare(): maps of several methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from agop.errors import InputError
from agop.pictures.colouring import Colouring
from agop.pictures.heat import Picture, heat, overlay
from agop.plot.figures import draw_panel, scale_bar
from agop.plot.grids import grid
from agop.plot.inputs import Map, Mask, map_of, map_problem, mask_of, picture_of

_MOST = 100


def compare(
    images: Any,
    maps: Mapping[str, Any],
    *,
    masks: Any = None,
    titles: Sequence[str] | None = None,
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure with a row per image (N,C,H,W) and a column per method's maps (N,H,W), with mask outlines (N,H,W).

    Each map has its own scale. The pixels above its brightest colour hold at most 2 % of its sum (`percentile`). With
    scale="common", a colour is a pixel's share of its map's sum, on a square-root scale up to the largest share in the
    figure. With an `opacity` below 1, maps are drawn over their images. `colours` is "inferno", "viridis", "jet" or
    "gray". Images may also be arrays (N,H,W,3) or PIL images. `titles` label the rows.
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    if not 0 < len(images) <= _MOST:
        raise InputError(f"{len(images)} images: pass 1 to {_MOST}, for example images[:6]")
    pictures = [picture_of(image) for image in images]
    columns = _maps(pictures, maps)
    for name, values in (("masks", masks), ("titles", titles)):
        if values is not None and len(values) != len(pictures):
            raise InputError(f"{len(pictures)} images and {len(values)} {name}: pass one per image")
    insides = [mask_of(None if masks is None else masks[row], picture) for row, picture in enumerate(pictures)]
    height, width = pictures[0].shape[:2]
    figure, panels, bar = grid(height / width, ["image", *columns], titles or [""] * len(pictures))
    for picture, inside, axes in zip(pictures, insides, panels[:, 0], strict=True):
        draw_panel(axes, picture, inside)
    top = draw_maps(panels[:, 1:].T, columns, insides, colouring, pictures)
    scale_bar(panels[0], colouring, top, bar)
    return figure


def draw_maps(
    panels: Any,
    maps: Mapping[str, Sequence[Map]],
    masks: Sequence[Mask | None],
    colouring: Colouring,
    pictures: Sequence[Picture | None],
) -> float:
    """Draw maps into axes (methods × images). Returns what the brightest colour means, as `Colouring.strengths`."""
    flat = {f"{row} {name}": saliency for name, column in maps.items() for row, saliency in enumerate(column)}
    strengths, top = colouring.strengths(flat)
    for name, axes_of_name in zip(maps, panels, strict=True):
        for row, (axes, mask, picture) in enumerate(zip(axes_of_name, masks, pictures, strict=True)):
            key = f"{row} {name}"
            draw_panel(axes, _coloured(picture, strengths[key], colouring), mask, map_problem(flat[key]))
    return top


def _coloured(picture: Picture | None, strength: Map, colouring: Colouring) -> Picture:
    """The opaque map alone, a transparent one over its picture."""
    if picture is None or colouring.opacity == 1:
        return heat(strength, 1.0, colouring.colours)
    return overlay(picture, strength, 1.0, colouring.opacity, colouring.colours)


def _maps(pictures: Sequence[Picture], maps: Mapping[str, Any]) -> dict[str, list[Map]]:
    """Maps (H,W) of each method, one per picture."""
    if not isinstance(maps, Mapping):
        raise InputError(f"maps is a {type(maps).__name__}: pass a dict {{'vanilla': maps, …}} of maps (N,H,W)")
    if not maps:
        raise InputError("maps is empty: pass a dict {'vanilla': maps, …} of maps (N,H,W)")
    for name, values in maps.items():
        if len(values) != len(pictures):
            shape = tuple(values.shape) if isinstance(values, Tensor | np.ndarray) else (len(values),)
            height, width = pictures[0].shape[:2]
            raise InputError(f"{name} has shape {shape}: pass maps ({len(pictures)},{height},{width}), one per image")
    return {
        name: [map_of(one, picture, name) for one, picture in zip(values, pictures, strict=True)]
        for name, values in maps.items()
    }
