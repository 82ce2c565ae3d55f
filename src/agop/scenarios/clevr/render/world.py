"""What rays can meet while a picture is made, and the surfaces on which they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.light import GOLDEN_ANGLE, Light
from agop.scenarios.clevr.render.solids import Rays, Solids
from agop.scenarios.clevr.render.things import COLORS, Thing
from agop.scenarios.clevr.render.vectors import Floats, Ints

# CLEVR took its colours' numbers for linear light, which makes them pale, and named them by how they look on a
# screen (2.2), which makes them dark: between the two, all eight can be told apart.
_GAMMA = 1.4
_STRAY = 0.05


@dataclass(frozen=True)
class World:
    """Solids, their linear colours (3,K), which of them are metal (K,), lamps, points on them (3,turns,points), and
    how far a mirrored ray of each turn strays (3,turns).
    """

    solids: Solids
    albedo: Floats
    metal: NDArray[np.bool_]
    lights: tuple[Light, ...]
    points: tuple[Floats, ...]
    stray: Floats

    @classmethod
    def of(cls, things: Sequence[Thing], lights: tuple[Light, ...], turns: int) -> World:
        """The world of a scene, for so many rays a pixel."""
        shades = np.array([COLORS[thing.color] for thing in things], np.float32).reshape(-1, 3).T / 255
        metal = np.array([thing.material == "metal" for thing in things], bool)
        points = tuple(light.points(turns).astype(np.float32) for light in lights)
        return cls(Solids(things, np.float32), shades**_GAMMA, metal, lights, points, _strays(turns))


def _strays(turns: int) -> Floats:
    """What to add to a normal (3,turns): points even over a small sphere, so that a pixel's rays blur a mirror."""
    number = np.arange(turns)
    height, angle = 1 - (2 * number + 1) / turns, number * GOLDEN_ANGLE
    ring = np.sqrt(1 - height * height)
    sphere = np.stack([ring * np.cos(angle), ring * np.sin(angle), height])
    # Around their mean: a single ray strays nowhere, and many to no side.
    strays: Floats = _STRAY * (sphere - sphere.mean(axis=1, keepdims=True))
    return strays.astype(np.float32)


@dataclass(frozen=True)
class Surface:
    """Places (3,N) where rays end, the unit vectors (3,N) they face along, and what they belong to (N,)."""

    rays: Rays
    places: Floats
    normals: Floats
    own: Ints

    @classmethod
    def of(cls, solids: Solids, rays: Rays, far: Floats, own: Ints) -> Surface:
        """The surface that rays reach after distances (N,): of things, or of the floor."""
        places = rays.origin + far * rays.direction
        normals = np.zeros_like(places)
        normals[2] = 1
        for index in range(len(solids.things)):
            here = np.flatnonzero(own == index)
            if len(here):
                normals[:, here] = solids.normals(index, places[:, here])
        return cls(rays, places, normals, own)
