"""Rays from the camera through the pixels of a picture, and which thing each meets first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

from agop.scenarios.clevr.render.camera import Camera
from agop.scenarios.clevr.render.solids import NOTHING, Rays, Solids
from agop.scenarios.clevr.render.things import Thing
from agop.scenarios.clevr.render.vectors import Ints

# So many rays go at once: their arrays fit the processor's cache, and NumPy's calls still cost little.
_AT_ONCE = 40_000


def pixel_rays(
    camera: Camera, width: int, height: int, rows: Ints, side: int = 1, dtype: DTypeLike = np.float64
) -> Rays:
    """The rays (side²·rows·width) through some rows of a picture: side×side a pixel, evenly; one is at its centre.

    A pixel's rays are far apart: all pixels' first rays come before their second ones.
    """
    inside = (np.arange(side) + 0.5) / side
    down = (rows[:, None] + np.repeat(inside, side)[:, None, None]) / height
    across = (np.arange(width) + np.tile(inside, side)[:, None, None]) / width
    direction = camera.rays(*np.broadcast_arrays(across, down)).reshape(3, -1).astype(dtype)
    origin = np.broadcast_to(np.array(camera.position, dtype)[:, None], direction.shape)
    turn = np.repeat(np.arange(side * side), len(rows) * width)
    return Rays(origin, direction, np.full(len(turn), NOTHING), turn)


def strips(width: int, height: int, side: int = 1) -> Iterator[Ints]:
    """The picture's rows, a few at a time."""
    rows = max(1, _AT_ONCE // (width * side * side))
    return (np.arange(top, min(top + rows, height)) for top in range(0, height, rows))


def first_seen(things: Sequence[Thing], camera: Camera, width: int, height: int) -> Ints:
    """The index (H,W) of the thing at each pixel's centre, negative where there is none."""
    solids = Solids(things)
    seen = [solids.first(pixel_rays(camera, width, height, rows))[1] for rows in strips(width, height)]
    return np.concatenate(seen).reshape(height, width)
