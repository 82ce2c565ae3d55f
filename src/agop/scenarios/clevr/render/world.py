"""A scene as arrays for rendering, and the surface points that rays hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.geometry import Rays, Solids
from agop.scenarios.clevr.render.lamps import GOLDEN_ANGLE, Lamp
from agop.scenarios.clevr.render.objects import COLORS, SceneObject
from agop.scenarios.clevr.render.vectors import Floats, Ints

# CLEVR uses its colour values as linear light, which looks pale. As sRGB (2.2) they look dark. With an exponent in
# between, all eight colours are easy to distinguish.
_GAMMA = 1.4
_JITTER = 0.05


@dataclass(frozen=True)
class World:
    """Objects, their linear colours (3,K), whether they're metal (K,), lamps, and shadow-ray targets on each lamp
    (3,samples,points). `jitter` (3,samples) is added to a mirror's normal for each ray of a pixel.
    """

    solids: Solids
    albedo: Floats
    metal: NDArray[np.bool_]
    lamps: tuple[Lamp, ...]
    lamp_points: tuple[Floats, ...]
    jitter: Floats

    @classmethod
    def of(cls, objects: Sequence[SceneObject], lamps: tuple[Lamp, ...], samples: int) -> World:
        """The world of a scene, for that many rays per pixel."""
        colors = np.array([COLORS[each.color] for each in objects], np.float32).reshape(-1, 3).T / 255
        metal = np.array([each.material == "metal" for each in objects], bool)
        lamp_points = tuple(lamp.points(samples).astype(np.float32) for lamp in lamps)
        return cls(Solids(objects, np.float32), colors**_GAMMA, metal, lamps, lamp_points, _jitter(samples))


def _jitter(samples: int) -> Floats:
    """Offsets (3,samples), even over a small sphere and of mean 0: together a pixel's rays blur a mirror image."""
    number = np.arange(samples)
    height, angle = 1 - (2 * number + 1) / samples, number * GOLDEN_ANGLE
    ring = np.sqrt(1 - height * height)
    sphere = np.stack([ring * np.cos(angle), ring * np.sin(angle), height])
    offsets: Floats = _JITTER * (sphere - sphere.mean(axis=1, keepdims=True))
    return offsets.astype(np.float32)


@dataclass(frozen=True)
class Surface:
    """Points (3,N) that rays hit, their unit normals (3,N), and the objects they belong to (N,)."""

    rays: Rays
    points: Floats
    normals: Floats
    owner: Ints

    @classmethod
    def of(cls, solids: Solids, rays: Rays, distance: Floats, owner: Ints) -> Surface:
        """The surface that rays hit after distances (N,): of objects, or of the floor."""
        points = rays.origin + distance * rays.direction
        normals = np.zeros_like(points)
        normals[2] = 1
        for index in range(len(solids.objects)):
            of_object = np.flatnonzero(owner == index)
            if len(of_object):
                normals[:, of_object] = solids.normals(index, points[:, of_object])
        return cls(rays, points, normals, owner)
