"""Area lamps, and how much of one is visible from a point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.geometry import Solids
from agop.scenarios.clevr.render.vectors import Floats, Ints, Point, dot, unit

GOLDEN_ANGLE = np.pi * (3 - 5**0.5)
# Shadow rays per lamp, over all rays of a pixel: enough for soft shadows without visible steps.
_POINTS = 36


@dataclass(frozen=True)
class Lamp:
    """A disc that faces the origin: position, radius, and linear colour times power."""

    position: Point
    radius: float
    color: Point

    def points(self, samples: int) -> Floats:
        """Points on the disc (3,samples,points): each ray of a pixel has its own, spread over the whole disc.

        All pixels use the same points, so shadows have no noise.
        """
        count = -(-_POINTS // samples)
        # A sunflower spiral is even over the disc, and so is every stride through it.
        number = np.arange(samples * count)
        radius, angle = self.radius * np.sqrt((number + 0.5) / len(number)), number * GOLDEN_ANGLE
        position = np.array(self.position)
        side = unit(np.array([-position[1], position[0], 0.0]))
        around = np.outer(side, np.cos(angle)) + np.outer(np.cross(unit(position), side), np.sin(angle))
        points: Floats = (position[:, None] + radius * around).reshape(3, count, samples).swapaxes(1, 2)
        return points


# Key lamp (warmer, and about four times as strong as the fill), fill lamp and back lamp.
LAMPS = (
    Lamp((6.4, -2.9, 4.3), 0.7, (30.0, 28.5, 26.5)),
    Lamp((-4.7, -4.0, 3.0), 1.0, (7.0, 7.4, 7.8)),
    Lamp((-1.2, 2.6, 5.8), 0.7, (10.0, 10.0, 10.0)),
)


def visible_share(solids: Solids, lamp: Lamp, lamp_points: Floats, points: Floats, owner: Ints, sample: Ints) -> Floats:
    """Share (N,) of a lamp's points (3,samples,points) that no object hides from points (3,N).

    An object never hides the lamp from its own surface (`owner`): where that faces away, the cosine is already 0.
    """
    free = np.ones((lamp_points.shape[2], points.shape[1]), bool)
    for index, may_hide in enumerate(_may_hide(solids, lamp, points)):
        tested = np.flatnonzero(may_hide & (owner != index))
        if len(tested):
            start = points[:, None, tested]
            towards = lamp_points[:, sample[tested]].swapaxes(1, 2) - start
            free[:, tested] &= solids.entry(index, start, towards) > 1
    share: Floats = free.mean(axis=0, dtype=points.dtype)
    return share


def _may_hide(solids: Solids, lamp: Lamp, points: Floats) -> NDArray[np.bool_]:
    """True (K,N) where an object's bounding sphere touches the cone from a point to the lamp."""
    towards = np.array(lamp.position, points.dtype)[:, None] - points
    length = np.sqrt(dot(towards, towards))
    offset = solids.centres[:, :, None] - points[:, None]
    along = dot(offset, (towards / length)[:, None])
    slope = lamp.radius / length
    reach = solids.bounds[:, None] * np.sqrt(1 + slope * slope) + slope * np.maximum(along, 0)
    touches: NDArray[np.bool_] = (dot(offset, offset) - along * along < reach * reach) & (
        along > -solids.bounds[:, None]
    )
    return touches
