"""What a ray brings home: light from the floor, from rubber and metal, and what metal mirrors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.ambient import FLOOR_ALBEDO, ambient, environment
from agop.scenarios.clevr.render.lamps import lamps
from agop.scenarios.clevr.render.solids import FLOOR, Rays
from agop.scenarios.clevr.render.vectors import Floats, dot, unit
from agop.scenarios.clevr.render.world import Surface, World

_RUBBER_ROUGH, _METAL_ROUGH = 0.45, 0.26
# A mirrored highlight is blurred twice. Were it as small as a direct one, a pixel's few rays would show it in dots.
_MIRRORED_ROUGHER = 0.2
# How much of the lamps' light is a highlight on rubber, and how much of all light metal scatters.
_SHEEN, _SCATTER = 0.04, 0.08


def radiance(world: World, rays: Rays, bounces: int = 3) -> Floats:
    """Linear light (3,N) that rays bring home, after at most so many mirrors."""
    brought = environment(rays.direction)
    if bounces < 0:
        return brought
    far, what = world.solids.first(rays)
    floor, things = what == FLOOR, what >= 0
    if floor.any():
        brought[:, floor] = _floor(world, Surface.of(world.solids, rays.at(floor), far[floor], what[floor]))
    if things.any():
        surface = Surface.of(world.solids, rays.at(things), far[things], what[things])
        brought[:, things] = _things(world, surface, bounces)
    return brought


def _floor(world: World, surface: Surface) -> Floats:
    arriving, _ = lamps(world, surface)
    return np.array(FLOOR_ALBEDO, np.float32)[:, None] * (arriving + _ambient(world, surface))


def _things(world: World, surface: Surface, bounces: int) -> Floats:
    color, metal = world.albedo[:, surface.own], world.metal[surface.own]
    mirrored = surface.rays.own >= 0
    rough = np.where(metal, _METAL_ROUGH, _RUBBER_ROUGH) + np.where(mirrored, _MIRRORED_ROUGHER, 0)
    arriving, highlights = lamps(world, surface, rough.astype(np.float32))
    scattered = color * (arriving + _ambient(world, surface))
    brought: Floats = np.where(metal, _SCATTER * scattered + color * highlights, scattered + _SHEEN * highlights)
    if metal.any():
        brought[:, metal] += color[:, metal] * _mirrored(world, surface, metal, bounces)
    return brought


def _mirrored(world: World, surface: Surface, metal: NDArray[np.bool_], bounces: int) -> Floats:
    """What the metal places (those chosen by a mask (N,)) see in their mirror."""
    rays = surface.rays.at(metal)
    normals = unit(surface.normals[:, metal] + world.stray[:, rays.turn])
    # At the rim a bevel's normal may turn away from the ray, which then must not be mirrored into the thing.
    cosine = np.maximum(-dot(normals, rays.direction), 0)
    away = unit(rays.direction + 2 * cosine * normals)
    return radiance(world, Rays(surface.places[:, metal], away, surface.own[metal], rays.turn), bounces - 1)


def _ambient(world: World, surface: Surface) -> Floats:
    return ambient(world.solids, world.albedo, surface.places, surface.normals, surface.own)
