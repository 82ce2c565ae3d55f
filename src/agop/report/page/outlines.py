"""The border of a mask, exact to the pixel, as the path of an SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def outline(mask: NDArray[Any]) -> str:
    """The path around the pixels (H,W) that are not zero; x and y count pixels from the upper left corner."""
    inside = np.pad(np.asarray(mask) != 0, 1)
    across = inside[1:, 1:-1] != inside[:-1, 1:-1]  # between a pixel and the one above it (H+1,W)
    down = inside[1:-1, 1:] != inside[1:-1, :-1]  # between a pixel and the one left of it (H,W+1)
    lines = [f"M{start} {y}H{end}" for y, start, end in _stretches(across)]
    return "".join(lines + [f"M{x} {start}V{end}" for x, start, end in _stretches(down.T)])


def _stretches(edges: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Line, start and end of each unbroken stretch of true values along the lines."""
    steps = np.diff(np.pad(edges, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    for line, row in enumerate(steps):
        starts, ends = np.flatnonzero(row == 1), np.flatnonzero(row == -1)
        yield from ((line, int(start), int(end)) for start, end in zip(starts, ends, strict=True))
