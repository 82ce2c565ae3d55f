"""overlay(): one map over its image."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from agop.pictures import heat
from agop.pictures.colouring import Colouring, top_value
from agop.plot.figures import colour_bar, draw_panel, figure, height_of, scale_bar, wrapped
from agop.plot.inputs import map_of, map_problem, mask_of, picture_of

_SIDE = 3.0


def overlay(
    image: Any,
    map: Any,
    *,
    title: str | None = None,
    mask: Any = None,
    ax: Axes | None = None,
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure of the dimmed image (C,H,W) under the colours of its map (H,W), with the outline of its mask (H,W).

    The image may also be an array (H,W,3) or a PIL image. With `ax`, draws into it and returns its figure. `opacity` is
    that of the brightest colour; `scale`, `percentile` and `colours` are as in `compare`.
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    picture = picture_of(image)
    saliency, inside = map_of(map, picture), mask_of(mask, picture)
    note = map_problem(saliency)
    height, width = picture.shape[:2]
    if ax is None:
        tall = min(max(_SIDE * height / width, 0.5 * _SIDE), 2 * _SIDE)
        title = None if title is None else wrapped(title, _SIDE / height_of("large"))
        lines = 0 if title is None else title.count("\n") + 1
        ax = figure(_SIDE + 0.9, tall + 0.15 + 1.3 * lines * height_of("large")).subplots()
    strengths, top = colouring.strengths({"map": saliency})
    draw_panel(ax, heat.overlay(picture, strengths["map"], 1.0, opacity, colours), inside, note)
    if title is not None:
        ax.set_title(title, parse_math=False)
    if note is None and scale == "own":
        highest = top_value(saliency, percentile)
        colour_bar([ax], Normalize(0, highest), "map value", colours, clipped=bool(saliency.max() > highest))
    else:
        scale_bar([ax], colouring, top)
    return _root_figure(ax)


def _root_figure(ax: Axes) -> Figure:
    """The outermost figure of the axes, which may be in subfigures."""
    parent: Any = ax.figure
    while not isinstance(parent, Figure):
        parent = parent.figure
    return parent
