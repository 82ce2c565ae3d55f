"""Grid of equal panels with a colour bar. Positions are computed: constrained layout takes seconds for 100 panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from agop.plot.figures import ShownFigure, height_of, wrapped

_SIDE, _GAP, _BAR = 1.25, 0.06, 0.12
_LINE = 1.25  # height of a line of text, in letter heights
_BAR_TEXT, _BAR_LABEL = 7.5, 9.5  # width of the bar's ticks and label, length of its label, in letter heights


def grid(height: float, columns: Sequence[str], rows: Sequence[str]) -> tuple[ShownFigure, Any, Axes]:
    """Figure, titled panels (rows × columns) of this height / width ratio, and the axes of the colour bar."""
    letter = height_of("small")
    tall = _SIDE * height
    heads = [wrapped(name, _SIDE / letter) for name in columns]
    sides = [wrapped(name, tall / letter) for name in rows]
    left, top = letter * _LINE * _lines(sides) + _GAP, letter * _LINE * _lines(heads) + 2 * _GAP
    across, down = len(columns) * (_SIDE + _GAP), len(rows) * (tall + _GAP)
    length = max(min(2.5, down - _GAP), letter * _BAR_LABEL)
    figure = ShownFigure(figsize=(left + across + _BAR + letter * _BAR_TEXT, top + max(down, length) + 0.75 * letter))
    width, whole = figure.get_size_inches()

    def add_axes(x: float, y: float, wide: float, high: float) -> Axes:
        return figure.add_axes((x / width, 1 - (y + high) / whole, wide / width, high / whole))

    panels = np.array(
        [
            [add_axes(left + i * (_SIDE + _GAP), top + j * (tall + _GAP), _SIDE, tall) for i in range(len(columns))]
            for j in range(len(rows))
        ]
    )
    for axes, head in zip(panels[0], heads, strict=True):
        axes.set_title(head, fontsize="small", pad=72 * _GAP, parse_math=False)
    for axes, side in zip(panels[:, 0], sides, strict=True):
        axes.set_ylabel(side, fontsize="small", labelpad=72 * _GAP / 2, parse_math=False)
    return figure, panels, add_axes(left + across + _GAP, top + max(0, down - _GAP - length) / 2, _BAR, length)


def _lines(texts: Sequence[str]) -> int:
    return max(text.count("\n") + 1 if text else 0 for text in texts)
