"""Figures without pyplot, so without backend, window or global state, and the parts drawn into them."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray

from agop.pictures.colouring import Colouring
from agop.pictures.heat import Picture, heat
from agop.plot.inputs import Mask

# Okabe and Ito's colour-blind-safe palette; each colour has its own dash pattern, for print in grey.
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": ":"},
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#009E73", "linestyle": "-."},
)
_OUTLINE = "#56B4E9"  # the colour of the palette that is farthest from the maps' colours


class ShownFigure(Figure):
    """Figure that displays itself as the last expression of a notebook cell, even if pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def figure(width: float, height: float) -> ShownFigure:
    """Empty figure of this size in inches, with constrained layout."""
    return ShownFigure(figsize=(width, height), layout="constrained")


def draw_panel(axes: Axes, picture: Picture, mask: Mask | None = None, note: str | None = None) -> None:
    """Draw a picture (H,W,3) without ticks, with the mask's outline; a note covers the picture."""
    axes.imshow(picture, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    if note is not None:
        height, width = picture.shape[:2]
        axes.add_patch(Rectangle((-0.5, -0.5), width, height, facecolor="0.85", edgecolor="0.6", hatch="///", lw=0))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        axes.text(0.5, 0.5, note, transform=axes.transAxes, ha="center", va="center", fontsize="small", bbox=box)
    if mask is not None:
        lines = LineCollection(list(outline(mask)), colors=_OUTLINE, linewidths=1.5, capstyle="projecting")
        lines.set_path_effects([Stroke(linewidth=2.5, foreground="black", capstyle="projecting"), Normal()])
        axes.add_collection(lines, autolim=False)


def outline(mask: Mask) -> NDArray[np.float64]:
    """Pixel edges (K,2,2), as (x, y) start and end, along the border of the mask (H,W)."""
    padded = np.pad(mask, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    across = np.stack([np.stack([columns, rows], -1), np.stack([columns + 1, rows], -1)], 1)
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    down = np.stack([np.stack([columns, rows], -1), np.stack([columns, rows + 1], -1)], 1)
    # A pixel extends half a unit to each side of its centre.
    return np.concatenate([across, down]) - 0.5


def wrapped(text: str, letters: float) -> str:
    """The text in lines whose width is `letters` letter heights; a letter is about 0.55 as wide as high."""
    return "\n".join(textwrap.wrap(text, max(4, int(letters / 0.55))))


def height_of(size: str) -> float:
    """Letter height in inches of a font size such as "small"."""
    return FontProperties(size=size).get_size_in_points() / 72


def colour_bar(
    axes: Sequence[Axes],
    scale: Normalize,
    label: str,
    colours: str,
    into: Axes | None = None,
    clipped: bool = False,
) -> Colorbar:
    """Colour bar of the maps, beside the axes or drawn `into` other axes; an arrow at its end if values are clipped."""
    place: dict[str, Any] = {"ax": axes, "shrink": 0.9, "aspect": 15} if into is None else {"cax": into}
    listed = ListedColormap(heat(np.linspace(0, 1, 256)[None], 1.0, colours)[0] / 255, f"agop {colours}")
    bar = axes[0].figure.colorbar(ScalarMappable(scale, listed), extend="max" if clipped else "neither", **place)
    bar.set_label(label, fontsize="small")
    bar.ax.tick_params(labelsize="small")
    return bar


def scale_bar(axes: Sequence[Axes], colouring: Colouring, top: float, into: Axes | None = None) -> None:
    """Colour bar of a colouring: values relative to each map's top value, or shares up to `top` on a square-root scale.

    No bar if `top` is 0, when no map has colours.
    """
    clipped = colouring.percentile < 100
    if top <= 0:
        if into is not None:
            into.remove()
    elif colouring.scale == "own":
        bar = colour_bar(axes, Normalize(0, 1), "relative value", colouring.colours, into, clipped)
        bar.set_ticks([0.0, 0.5, 1.0], labels=["0", "0.5", "1"])
    else:
        bar = colour_bar(axes, PowerNorm(0.5, 0, top), "share of the map", colouring.colours, into, clipped)
        # Round numbers at about a third and two thirds of the bar.
        ticks = [0.0, *(float(f"{top * part**2:.1g}") for part in (1 / 3, 2 / 3)), top]
        bar.set_ticks(ticks, labels=[f"{100 * tick:.3g} %" for tick in ticks])
        bar.minorticks_off()
