"""All things of a scene as arrays, and what a ray meets first among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
from numpy.typing import DTypeLike, NDArray

from agop.scenarios.clevr.render.shapes import REACH, entry, normal
from agop.scenarios.clevr.render.things import Thing
from agop.scenarios.clevr.render.vectors import Floats, Ints, dot

# What a ray meets, or leaves, if it is not the thing of that index.
FLOOR, NOTHING = -1, -2


@dataclass(frozen=True)
class Rays:
    """Rays from origins (3,N) along unit directions (3,N), leaving the things `own` (N,); `turn` (N,) numbers the
    ray within its pixel.
    """

    origin: Floats
    direction: Floats
    own: Ints
    turn: Ints

    def at(self, chosen: NDArray[np.bool_]) -> Rays:
        """Only the rays that a mask (N,) chooses."""
        return Rays(self.origin[:, chosen], self.direction[:, chosen], self.own[chosen], self.turn[chosen])


class Solids:
    """The things' centres (3,K), radii (K,) and the radii (K,) of the balls that hold them."""

    def __init__(self, things: Sequence[Thing], dtype: DTypeLike = np.float64) -> None:
        self.things = things
        self.centres = np.array([thing.centre for thing in things], dtype).reshape(-1, 3).T
        self.radii = np.array([thing.radius for thing in things], dtype)
        self.reach = self.radii * np.array([REACH[thing.shape] for thing in things], dtype)

    def first(self, rays: Rays) -> tuple[Floats, Ints]:
        """How far each ray goes (N,), and what it meets there (N,): a thing's index, FLOOR or NOTHING."""
        origin, direction = rays.origin, rays.direction
        falls = direction[2] < 0
        far = np.where(falls, -origin[2] / np.where(falls, direction[2], -1), np.inf).astype(direction.dtype)
        what = np.where(falls, FLOOR, NOTHING)
        for index, here in enumerate(self._near(rays)):
            chosen = np.flatnonzero(here)
            if not len(chosen):
                continue
            distance = self.entry(index, origin[:, chosen], direction[:, chosen])
            closer = distance < far[chosen]
            far[chosen[closer]], what[chosen[closer]] = distance[closer], index
        return far, what

    def _near(self, rays: Rays) -> NDArray[np.bool_]:
        """True (K,N) where a ray passes through the ball that holds a thing, unless it leaves that thing."""
        seen = self.centres[:, :, None] - rays.origin[:, None]
        along = dot(seen, rays.direction[:, None])
        reach = self.reach[:, None]
        passes = (dot(seen, seen) - along * along < reach * reach) & (along > -reach)
        near: NDArray[np.bool_] = passes & (rays.own != np.arange(len(self.things))[:, None])
        return near

    def entry(self, index: int, origin: Floats, direction: Floats) -> Floats:
        """How many directions (3,…) from the origin (3,…) a ray enters one thing, inf where it misses it: (…)."""
        start = self._local(index, origin - self._centre(index, origin))
        return entry(self.things[index].shape, start, self._local(index, direction))

    def normals(self, index: int, points: Floats) -> Floats:
        """Outward unit vectors (3,N) at points (3,N) of one thing's surface."""
        found = normal(self.things[index].shape, self._local(index, points - self._centre(index, points)))
        return self._turned(index, found, back=True)

    def _centre(self, index: int, like: Floats) -> Floats:
        return self.centres[:, index].reshape(3, *(1,) * (like.ndim - 1))

    def _local(self, index: int, vectors: Floats) -> Floats:
        """Vectors (3,…) seen from the thing, whose half-width is 1."""
        local: Floats = self._turned(index, vectors) / self.radii[index]
        return local

    def _turned(self, index: int, vectors: Floats, back: bool = False) -> Floats:
        thing = self.things[index]
        if thing.shape != "cube":
            return vectors
        angle = radians(thing.rotation)
        c, s = cos(angle), sin(angle) * (-1 if back else 1)
        x, y, z = vectors
        return np.stack([c * x + s * y, c * y - s * x, z])
