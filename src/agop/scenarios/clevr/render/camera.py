"""The camera: which ray belongs to a place in the picture, and which place to a point."""

from __future__ import annotations

from dataclasses import dataclass
from math import radians, tan

import numpy as np

from agop.scenarios.clevr.render.vectors import Floats, Point, unit

# Half the frame's width at distance 1. The frame is 3:2 whatever the picture: a square one is squeezed.
_HALF_WIDTH = tan(radians(49.1) / 2)
_HALF_HEIGHT = _HALF_WIDTH / 1.5


@dataclass(frozen=True)
class Camera:
    """A camera at a position, looking at the origin, the floor's normal upwards."""

    position: Point

    def axes(self) -> tuple[Floats, Floats, Floats]:
        """Unit vectors (3,) to the right, upwards and forwards."""
        forward = unit(-np.array(self.position))
        right = unit(np.array([forward[1], -forward[0], 0.0]))
        return right, np.cross(right, forward), forward

    def floor_axes(self) -> Floats:
        """Unit vectors (2,2) along the floor: to the right, and away from the camera."""
        right, _, forward = self.axes()
        return np.stack([right[:2], unit(forward * [1, 1, 0])[:2]])

    def rays(self, across: Floats, down: Floats) -> Floats:
        """Unit directions (3,…) through places in the frame, from 0 to 1 from its upper left corner."""
        right, up, forward = (axis.reshape(3, *(1,) * across.ndim) for axis in self.axes())
        through = forward + _HALF_WIDTH * (2 * across - 1) * right + _HALF_HEIGHT * (1 - 2 * down) * up
        return unit(through)


CAMERA = Camera((7.48, -6.51, 5.34))
