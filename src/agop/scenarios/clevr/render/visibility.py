"""Rays from the camera through the pixels of an image, and the object visible at each pixel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

from agop.scenarios.clevr.render.camera import Camera
from agop.scenarios.clevr.render.geometry import NOTHING, Rays, Solids
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.vectors import Ints

# Rays per block: their arrays fit the processor's cache, and the overhead of NumPy's calls is still small.
_BLOCK = 40_000


def pixel_rays(
    camera: Camera, width: int, height: int, rows: Ints, side: int = 1, dtype: DTypeLike = np.float64
) -> Rays:
    """Rays (side²·rows·width) through some rows of an image: an even grid of side×side per pixel.

    Sorted by their number within the pixel: the first rays of all pixels, then the second ones.
    """
    inside = (np.arange(side) + 0.5) / side
    down = (rows[:, None] + np.repeat(inside, side)[:, None, None]) / height
    across = (np.arange(width) + np.tile(inside, side)[:, None, None]) / width
    direction = camera.rays(*np.broadcast_arrays(across, down)).reshape(3, -1).astype(dtype)
    origin = np.broadcast_to(np.array(camera.position, dtype)[:, None], direction.shape)
    sample = np.repeat(np.arange(side * side), len(rows) * width)
    return Rays(origin, direction, np.full(len(sample), NOTHING), sample)


def row_blocks(width: int, height: int, side: int = 1) -> Iterator[Ints]:
    """The image's rows, some at a time."""
    rows = max(1, _BLOCK // (width * side * side))
    return (np.arange(top, min(top + rows, height)) for top in range(0, height, rows))


def visible_objects(objects: Sequence[SceneObject], camera: Camera, width: int, height: int) -> Ints:
    """Index (H,W) of the object at each pixel's centre, negative where there's none."""
    solids = Solids(objects)
    blocks = [solids.first_hit(pixel_rays(camera, width, height, rows))[1] for rows in row_blocks(width, height)]
    return np.concatenate(blocks).reshape(height, width)
