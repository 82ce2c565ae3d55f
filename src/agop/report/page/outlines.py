"""The pixel-exact border of a mask as an SVG path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def outline(mask: NDArray[Any]) -> str:
    """SVG path around the non-zero pixels of a mask (H,W); coordinates are pixels from the upper left corner."""
    inside = np.pad(np.asarray(mask) != 0, 1)
    across = inside[1:, 1:-1] != inside[:-1, 1:-1]  # between a pixel and the one above it (H+1,W)
    down = inside[1:-1, 1:] != inside[1:-1, :-1]  # between a pixel and the one left of it (H,W+1)
    lines = [f"M{start} {y}H{end}" for y, start, end in _segments(across)]
    return "".join(lines + [f"M{x} {start}V{end}" for x, start, end in _segments(down.T)])


def _segments(edges: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Line index, start and end of each run of true values."""
    steps = np.diff(np.pad(edges, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    for line, row in enumerate(steps):
        starts, ends = np.flatnonzero(row == 1), np.flatnonzero(row == -1)
        yield from ((line, int(start), int(end)) for start, end in zip(starts, ends, strict=True))
