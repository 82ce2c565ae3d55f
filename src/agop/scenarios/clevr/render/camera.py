"""The camera, and rays through points of its frame."""

from __future__ import annotations

from dataclasses import dataclass
from math import radians, tan

import numpy as np

from agop.scenarios.clevr.render.vectors import Floats, Point, unit

# Half the frame's width at distance 1. The frame is 3:2 for every image size: a square image is squeezed.
_HALF_WIDTH = tan(radians(49.1) / 2)
_HALF_HEIGHT = _HALF_WIDTH / 1.5


@dataclass(frozen=True)
class Camera:
    """A camera that looks at the origin, with the floor's normal pointing up in the image."""

    position: Point

    def axes(self) -> tuple[Floats, Floats, Floats]:
        """Unit vectors (3,): right, up and forward."""
        forward = unit(-np.array(self.position))
        right = unit(np.array([forward[1], -forward[0], 0.0]))
        return right, np.cross(right, forward), forward

    def floor_axes(self) -> Floats:
        """Unit vectors (2,2) along the floor: right, and away from the camera."""
        right, _, forward = self.axes()
        return np.stack([right[:2], unit(forward * [1, 1, 0])[:2]])

    def rays(self, across: Floats, down: Floats) -> Floats:
        """Unit directions (3,…) through points of the frame, given from 0 to 1 from its upper left corner."""
        right, up, forward = (axis.reshape(3, *(1,) * across.ndim) for axis in self.axes())
        through = forward + _HALF_WIDTH * (2 * across - 1) * right + _HALF_HEIGHT * (1 - 2 * down) * up
        return unit(through)


CAMERA = Camera((7.48, -6.51, 5.34))
