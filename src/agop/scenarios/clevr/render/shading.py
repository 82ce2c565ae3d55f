"""Light along a ray: from the floor, from rubber, and from metal with its reflections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.geometry import FLOOR, Rays
from agop.scenarios.clevr.render.lighting import ambient_light, direct_light, environment
from agop.scenarios.clevr.render.vectors import Floats, dot, unit
from agop.scenarios.clevr.render.world import Surface, World

_FLOOR_ALBEDO = (0.50, 0.495, 0.49)
_RUBBER_ROUGHNESS, _METAL_ROUGHNESS = 0.45, 0.26
# Extra roughness of a mirrored highlight, which is blurred twice. Without it, a pixel's few rays show it as dots.
_MIRRORED_ROUGHNESS = 0.2
# Strength of rubber's highlights, and of metal's diffuse reflection.
_SPECULAR, _DIFFUSE = 0.04, 0.08


def radiance(world: World, rays: Rays, bounces: int = 3) -> Floats:
    """Linear light (3,N) that arrives along rays, after at most that many mirror reflections."""
    light = environment(rays.direction)
    if bounces < 0:
        return light
    distance, target = world.solids.first_hit(rays)
    floor, objects = target == FLOOR, target >= 0
    if floor.any():
        light[:, floor] = _floor(world, Surface.of(world.solids, rays.at(floor), distance[floor], target[floor]))
    if objects.any():
        surface = Surface.of(world.solids, rays.at(objects), distance[objects], target[objects])
        light[:, objects] = _objects(world, surface, bounces)
    return light


def _floor(world: World, surface: Surface) -> Floats:
    arriving, _ = direct_light(world, surface)
    return np.array(_FLOOR_ALBEDO, np.float32)[:, None] * (arriving + ambient_light(world, surface))


def _objects(world: World, surface: Surface, bounces: int) -> Floats:
    color, metal = world.albedo[:, surface.owner], world.metal[surface.owner]
    mirrored = surface.rays.source >= 0
    roughness = np.where(metal, _METAL_ROUGHNESS, _RUBBER_ROUGHNESS) + np.where(mirrored, _MIRRORED_ROUGHNESS, 0)
    arriving, highlights = direct_light(world, surface, roughness.astype(np.float32))
    diffuse = color * (arriving + ambient_light(world, surface))
    light: Floats = np.where(metal, _DIFFUSE * diffuse + color * highlights, diffuse + _SPECULAR * highlights)
    if metal.any():
        light[:, metal] += color[:, metal] * _reflection(world, surface, metal, bounces)
    return light


def _reflection(world: World, surface: Surface, metal: NDArray[np.bool_], bounces: int) -> Floats:
    """Mirrored light (3,M) at the M metal points, selected by a mask (N,)."""
    rays = surface.rays.at(metal)
    normals = unit(surface.normals[:, metal] + world.jitter[:, rays.sample])
    # Near the silhouette a bevel's normal may face away from the ray, which must not be reflected into the object.
    cosine = np.maximum(-dot(normals, rays.direction), 0)
    reflected = unit(rays.direction + 2 * cosine * normals)
    return radiance(world, Rays(surface.points[:, metal], reflected, surface.owner[metal], rays.sample), bounces - 1)
