"""A grid of equal panels with a colour bar. By arithmetic: matplotlib's own layout takes seconds for a hundred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from agop.plot.figures import ShownFigure, height_of, wrapped

_SIDE, _GAP, _BAR = 1.25, 0.06, 0.12
_LINE = 1.25  # of a line of text, in letters' heights
_BAR_TEXT, _BAR_LABEL = 7.5, 9.5  # of the ticks and the label beside the bar, across and along it, in the same


def grid(height: float, columns: Sequence[str], rows: Sequence[str]) -> tuple[ShownFigure, Any, Axes]:
    """A figure of panels so many times as high as wide, under and beside their titles, its axes and that of the bar."""
    letter = height_of("small")
    tall = _SIDE * height
    heads = [wrapped(name, _SIDE / letter) for name in columns]
    sides = [wrapped(name, tall / letter) for name in rows]
    left, top = letter * _LINE * _lines(sides) + _GAP, letter * _LINE * _lines(heads) + 2 * _GAP
    across, down = len(columns) * (_SIDE + _GAP), len(rows) * (tall + _GAP)
    length = max(min(2.5, down - _GAP), letter * _BAR_LABEL)
    drawn = ShownFigure(figsize=(left + across + _BAR + letter * _BAR_TEXT, top + max(down, length) + 0.75 * letter))
    width, whole = drawn.get_size_inches()

    def placed(x: float, y: float, wide: float, high: float) -> Axes:
        return drawn.add_axes((x / width, 1 - (y + high) / whole, wide / width, high / whole))

    panels = np.array(
        [
            [placed(left + i * (_SIDE + _GAP), top + j * (tall + _GAP), _SIDE, tall) for i in range(len(columns))]
            for j in range(len(rows))
        ]
    )
    for axes, head in zip(panels[0], heads, strict=True):
        axes.set_title(head, fontsize="small", pad=72 * _GAP, parse_math=False)
    for axes, side in zip(panels[:, 0], sides, strict=True):
        axes.set_ylabel(side, fontsize="small", labelpad=72 * _GAP / 2, parse_math=False)
    return drawn, panels, placed(left + across + _GAP, top + max(0, down - _GAP - length) / 2, _BAR, length)


def _lines(texts: Sequence[str]) -> int:
    return max(text.count("\n") + 1 if text else 0 for text in texts)
