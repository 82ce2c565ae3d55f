"""compare(): methods side by side on one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from agop.errors import InputError
from agop.pictures.heat import Picture, heat
from agop.pictures.sheets import shares
from agop.plot.figures import bar_of_shares, draw_panel
from agop.plot.grids import grid
from agop.plot.inputs import Map, Mask, map_of, mask_of, nothing_to_see, picture_of

_MOST = 100


def compare(images: Any, maps: Mapping[str, Any], *, masks: Any = None, titles: Sequence[str] | None = None) -> Figure:
    """A figure with a row for each image (N,C,H,W), a column for each method's maps (N,H,W), and the masks' outlines.

    All maps are on one scale: a pixel shows its share of its map's sum, and the top colour is the largest share in the
    figure, on a square-root axis. The images may be arrays (N,H,W,3) or PIL images, too; `titles` stand at the rows.
    """
    if not 0 < len(images) <= _MOST:
        raise InputError(f"{len(images)} images: give 1 to {_MOST}, each of which is a row, for example images[:6]")
    pictures = [picture_of(image) for image in images]
    found = _maps(pictures, maps)
    for name, given in (("masks", masks), ("titles", titles)):
        if given is not None and len(given) != len(pictures):
            raise InputError(f"{len(pictures)} images and {len(given)} {name}: give one for each image")
    insides = [mask_of(None if masks is None else masks[row], picture) for row, picture in enumerate(pictures)]
    height, width = pictures[0].shape[:2]
    drawn, panels, bar = grid(height / width, ["image", *found], titles or [""] * len(pictures))
    for picture, inside, axes in zip(pictures, insides, panels[:, 0], strict=True):
        draw_panel(axes, picture, inside)
    bar_of_shares(panels[0], draw_shares(panels[:, 1:].T, found, insides), bar)
    return drawn


def draw_shares(panels: Any, maps: Mapping[str, Sequence[Map]], masks: Sequence[Mask | None]) -> float:
    """Draw each map into its axes, methods by images, on one scale, and return the top of that scale."""
    flat = {f"{row} {name}": saliency for name, column in maps.items() for row, saliency in enumerate(column)}
    values, top = shares(flat)
    for name, axes_of_name in zip(maps, panels, strict=True):
        for row, (axes, mask) in enumerate(zip(axes_of_name, masks, strict=True)):
            key = f"{row} {name}"
            draw_panel(axes, heat(values[key], 1.0), mask, nothing_to_see(flat[key]))
    return top


def _maps(pictures: Sequence[Picture], maps: Mapping[str, Any]) -> dict[str, list[Map]]:
    """The maps of each method, one for each picture."""
    if not isinstance(maps, Mapping):
        raise InputError(f"maps is a {type(maps).__name__}: give {{'vanilla': maps, …}}, each (N,H,W)")
    if not maps:
        raise InputError("maps hold no method: give {'vanilla': maps, …}, each (N,H,W)")
    for name, given in maps.items():
        if len(given) != len(pictures):
            shape = tuple(given.shape) if isinstance(given, Tensor | np.ndarray) else (len(given),)
            height, width = pictures[0].shape[:2]
            raise InputError(
                f"{name} has shape {shape}: give maps ({len(pictures)},{height},{width}), one for each image"
            )
    return {
        name: [map_of(one, picture, name) for one, picture in zip(given, pictures, strict=True)]
        for name, given in maps.items()
    }
