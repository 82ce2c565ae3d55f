"""The camera: which ray belongs to a place in the picture, and which place to a point."""

from __future__ import annotations

from dataclasses import dataclass
from math import radians, tan

import numpy as np

from agop.scenarios.clevr.render.vectors import Floats, Point, dot, unit

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

    def directions(self) -> dict[str, list[float]]:
        """CLEVR's six directions: unit vectors, four of them along the floor."""
        right, _, forward = self.axes()
        behind = unit(forward * [1, 1, 0])
        pairs = {"behind": behind, "front": -behind, "left": -right, "right": right}
        named = pairs | {"above": np.array([0.0, 0.0, 1.0]), "below": np.array([0.0, 0.0, -1.0])}
        # + 0.0 turns a minus zero into a zero.
        return {name: (vector + 0.0).tolist() for name, vector in named.items()}

    def rays(self, across: Floats, down: Floats) -> Floats:
        """Unit directions (3,…) through places in the frame, from 0 to 1 from its upper left corner."""
        right, up, forward = (axis.reshape(3, *(1,) * across.ndim) for axis in self.axes())
        through = forward + _HALF_WIDTH * (2 * across - 1) * right + _HALF_HEIGHT * (1 - 2 * down) * up
        return unit(through)

    def project(self, point: Point) -> tuple[float, float, float]:
        """Where a point stands in the frame (across, down; both from 0 to 1), and its depth along the view."""
        right, up, forward = self.axes()
        seen = np.array(point) - self.position
        depth = float(dot(forward, seen))
        across = float(dot(right, seen)) / (depth * _HALF_WIDTH)
        upward = float(dot(up, seen)) / (depth * _HALF_HEIGHT)
        return (1 + across) / 2, (1 - upward) / 2, depth


CAMERA = Camera((7.48, -6.51, 5.34))
