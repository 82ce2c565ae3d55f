"""Where rays hit the objects of a scene, and the surface normals there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
from numpy.typing import DTypeLike, NDArray

from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.vectors import Floats, Ints, dot, unit

# What a ray hits, or starts from, if not an object's index.
FLOOR, NOTHING = -1, -2
# Radius of the bounding sphere of a shape of half-width 1.
BOUND = {"sphere": 1.0, "cylinder": 2**0.5, "cube": 3**0.5}
_BEVEL = 0.11
# A ray parallel to a face never crosses it; one tilted by this much crosses it far away.
_TINY = 1e-9


@dataclass(frozen=True)
class Rays:
    """Rays from origins (3,N) along unit directions (3,N).

    `source` (N,) is the object a ray starts from, `sample` (N,) the ray's number within its pixel.
    """

    origin: Floats
    direction: Floats
    source: Ints
    sample: Ints

    def at(self, selected: NDArray[np.bool_]) -> Rays:
        """The rays selected by a mask (N,)."""
        return Rays(self.origin[:, selected], self.direction[:, selected], self.source[selected], self.sample[selected])


class Solids:
    """Objects as arrays: centres (3,K), radii (K,) and radii of their bounding spheres (K,)."""

    def __init__(self, objects: Sequence[SceneObject], dtype: DTypeLike = np.float64) -> None:
        self.objects = objects
        self.centres = np.array([each.centre for each in objects], dtype).reshape(-1, 3).T
        self.radii = np.array([each.radius for each in objects], dtype)
        self.bounds = self.radii * np.array([BOUND[each.shape] for each in objects], dtype)

    def first_hit(self, rays: Rays) -> tuple[Floats, Ints]:
        """Distance (N,) to each ray's first hit, and what it hits (N,): an object's index, FLOOR or NOTHING."""
        origin, direction = rays.origin, rays.direction
        falls = direction[2] < 0
        distance = np.where(falls, -origin[2] / np.where(falls, direction[2], -1), np.inf).astype(direction.dtype)
        target = np.where(falls, FLOOR, NOTHING)
        for index, is_near in enumerate(self._near(rays)):
            near = np.flatnonzero(is_near)
            if not len(near):
                continue
            entries = self.entry(index, origin[:, near], direction[:, near])
            closer = entries < distance[near]
            distance[near[closer]], target[near[closer]] = entries[closer], index
        return distance, target

    def _near(self, rays: Rays) -> NDArray[np.bool_]:
        """True (K,N) where a ray crosses an object's bounding sphere, unless it starts from that object."""
        offset = self.centres[:, :, None] - rays.origin[:, None]
        along = dot(offset, rays.direction[:, None])
        bound = self.bounds[:, None]
        crosses = (dot(offset, offset) - along * along < bound * bound) & (along > -bound)
        near: NDArray[np.bool_] = crosses & (rays.source != np.arange(len(self.objects))[:, None])
        return near

    def entry(self, index: int, origin: Floats, direction: Floats) -> Floats:
        """Where rays enter one object (…), in multiples of their directions (3,…); inf where they miss it."""
        start = self._local(index, origin - self._centre(index, origin))
        return entry(self.objects[index].shape, start, self._local(index, direction))

    def normals(self, index: int, points: Floats) -> Floats:
        """Outward unit normals (3,N) at points (3,N) on one object's surface."""
        local = normal(self.objects[index].shape, self._local(index, points - self._centre(index, points)))
        return self._rotated(index, local, back=True)

    def _centre(self, index: int, like: Floats) -> Floats:
        return self.centres[:, index].reshape(3, *(1,) * (like.ndim - 1))

    def _local(self, index: int, vectors: Floats) -> Floats:
        """Vectors (3,…) in the object's own coordinates, in which its half-width is 1."""
        local: Floats = self._rotated(index, vectors) / self.radii[index]
        return local

    def _rotated(self, index: int, vectors: Floats, back: bool = False) -> Floats:
        if self.objects[index].shape != "cube":
            return vectors
        angle = radians(self.objects[index].rotation)
        c, s = cos(angle), sin(angle) * (-1 if back else 1)
        x, y, z = vectors
        return np.stack([c * x + s * y, c * y - s * x, z])


def entry(shape: str, origin: Floats, direction: Floats) -> Floats:
    """Where rays enter a shape of half-width 1 at the origin (…), in multiples of directions (3,…); inf if missed."""
    if shape == "sphere":
        enter, leave = _sphere(origin, direction)
    elif shape == "cube":
        enter, leave = _slab(origin, direction)
        enter, leave = enter.max(axis=0), leave.min(axis=0)
    else:
        enter, leave = _sphere(origin[:2], direction[:2])
        top, bottom = _slab(origin[2], direction[2])
        enter, leave = np.maximum(enter, top), np.minimum(leave, bottom)
    return np.where((enter < leave) & (enter > 0), enter, np.inf)


def _sphere(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the unit sphere; from the infinite vertical cylinder for two components."""
    a = np.maximum((direction * direction).sum(axis=0), _TINY)
    b = (origin * direction).sum(axis=0)
    discriminant = b * b - a * ((origin * origin).sum(axis=0) - 1)
    root = np.sqrt(np.maximum(discriminant, 0))
    # A miss enters at inf, after every exit, also when this interval is intersected with another.
    enter = np.where(discriminant > 0, (-b - root) / a, np.inf)
    return enter, (-b + root) / a


def _slab(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the slab between −1 and 1, for each component."""
    inverse = 1 / np.where(np.abs(direction) < _TINY, _TINY, direction)
    middle, half = -origin * inverse, np.abs(inverse)
    return middle - half, middle + half


def normal(shape: str, point: Floats) -> Floats:
    """Outward unit normals (3,N) at surface points (3,N). Edges of cubes and cylinders are shaded as if bevelled."""
    if shape == "sphere":
        return unit(point)
    if shape == "cube":
        return unit(np.sign(point) * _edge(np.abs(point)))
    radius = np.sqrt(point[0] ** 2 + point[1] ** 2)
    around = _edge(radius) / np.maximum(radius, _TINY)
    return unit(np.stack([point[0] * around, point[1] * around, np.sign(point[2]) * _edge(np.abs(point[2]))]))


def _edge(distance: Floats) -> Floats:
    """A ramp from 0 to 1 across the bevel: 0 inside a face, 1 at its edge."""
    return np.clip((distance - (1 - _BEVEL)) / _BEVEL, 0, 1)
