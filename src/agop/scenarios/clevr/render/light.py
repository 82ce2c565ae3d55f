"""Lamps with a surface, and how much of them can be seen from a place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.solids import Solids
from agop.scenarios.clevr.render.vectors import Floats, Ints, Point, dot, unit

GOLDEN_ANGLE = np.pi * (3 - 5**0.5)
# Points on each lamp, over all rays of a pixel: enough that the steps of a soft shadow can't be told apart.
_POINTS = 36


@dataclass(frozen=True)
class Light:
    """A round lamp that faces the origin: where it is, its radius, and its linear colour times its power."""

    position: Point
    radius: float
    color: Point

    def points(self, turns: int) -> Floats:
        """Points on the lamp (3,turns,points): each ray of a pixel has its own, spread over the whole lamp.

        They are the same for all pixels, and so make no noise.
        """
        each = -(-_POINTS // turns)
        # A sunflower's seeds: even over the disc, and so is every stride through them.
        number = np.arange(turns * each)
        radius, angle = self.radius * np.sqrt((number + 0.5) / len(number)), number * GOLDEN_ANGLE
        position = np.array(self.position)
        side = unit(np.array([-position[1], position[0], 0.0]))
        around = np.outer(side, np.cos(angle)) + np.outer(np.cross(unit(position), side), np.sin(angle))
        points: Floats = (position[:, None] + radius * around).reshape(3, each, turns).swapaxes(1, 2)
        return points


# The key, about four times the fill and warmer, the fill and the back lamp.
LIGHTS = (
    Light((6.4, -2.9, 4.3), 0.7, (30.0, 28.5, 26.5)),
    Light((-4.7, -4.0, 3.0), 1.0, (7.0, 7.4, 7.8)),
    Light((-1.2, 2.6, 5.8), 0.7, (10.0, 10.0, 10.0)),
)


def seen_share(solids: Solids, light: Light, points: Floats, places: Floats, own: Ints, turn: Ints) -> Floats:
    """The share (N,) of a lamp's points (3,turns,points) that things don't hide from places (3,N).

    A thing never hides the lamp from its own surface (`own`): where that turns away, the cosine is 0 already.
    """
    free = np.ones((points.shape[2], places.shape[1]), bool)
    for index, here in enumerate(_in_the_way(solids, light, places)):
        chosen = np.flatnonzero(here & (own != index))
        if len(chosen):
            start = places[:, None, chosen]
            towards = points[:, turn[chosen]].swapaxes(1, 2) - start
            free[:, chosen] &= solids.entry(index, start, towards) > 1
    share: Floats = free.mean(axis=0, dtype=places.dtype)
    return share


def _in_the_way(solids: Solids, light: Light, places: Floats) -> NDArray[np.bool_]:
    """True (K,N) where the ball that holds a thing touches the cone from a place to the lamp."""
    towards = np.array(light.position, places.dtype)[:, None] - places
    length = np.sqrt(dot(towards, towards))
    seen = solids.centres[:, :, None] - places[:, None]
    along = dot(seen, (towards / length)[:, None])
    slope = light.radius / length
    reach = solids.reach[:, None] * np.sqrt(1 + slope * slope) + slope * np.maximum(along, 0)
    touches: NDArray[np.bool_] = (dot(seen, seen) - along * along < reach * reach) & (along > -solids.reach[:, None])
    return touches
