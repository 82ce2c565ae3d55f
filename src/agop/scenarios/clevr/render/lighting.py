"""Light that arrives at a surface: from the lamps, and from all around (sky, floor, other objects)."""

from __future__ import annotations

import numpy as np

from agop.scenarios.clevr.render.lamps import Lamp, visible_share
from agop.scenarios.clevr.render.vectors import Floats, dot, positive_cosine, unit
from agop.scenarios.clevr.render.world import Surface, World

# Added to the squared distance, so that a lamp close to the floor makes no glaring spot.
_SOFTENING = 8
_ZENITH, _HORIZON = 0.16, 0.34
# Light that the floor, and an object of albedo 1, reflect onto their surroundings.
_FLOOR_GLOW, _OBJECT_GLOW = 0.30, 0.35


def direct_light(world: World, surface: Surface, roughness: Floats | None = None) -> tuple[Floats, Floats]:
    """Linear light (3,N) from the lamps, and their highlights (3,N) for a roughness (N,), 0 without one."""
    arriving, highlights = np.zeros_like(surface.points), np.zeros_like(surface.points)
    for lamp, lamp_points in zip(world.lamps, world.lamp_points, strict=True):
        towards = np.array(lamp.position, np.float32)[:, None] - surface.points
        distance = np.sqrt(dot(towards, towards))
        towards /= distance
        share = visible_share(world.solids, lamp, lamp_points, surface.points, surface.owner, surface.rays.sample)
        strength = share * _strength(lamp, surface, towards, distance)
        color = np.array(lamp.color, np.float32)[:, None]
        arriving += color * strength
        if roughness is not None:
            # The highlight of a large lamp looks like that of a small lamp on a rougher surface.
            highlights += color * (strength * _lobe(surface, towards, roughness + lamp.radius / (2 * distance)))
    return arriving, highlights


def _strength(lamp: Lamp, surface: Surface, towards: Floats, distance: Floats) -> Floats:
    """Light (N,) from an unhidden lamp: falls with the distance and with the cosines at the lamp and the surface."""
    at_lamp = positive_cosine(unit(np.array(lamp.position, np.float32))[:, None], towards)
    strength: Floats = positive_cosine(surface.normals, towards) * at_lamp / (distance * distance + _SOFTENING)
    return strength


def _lobe(surface: Surface, towards: Floats, roughness: Floats) -> Floats:
    """GGX lobe (N,): share of the light from directions (3,N) that the surface reflects back along its rays."""
    half = unit(towards - surface.rays.direction)
    square = roughness**4
    peak = dot(surface.normals, half) ** 2 * (square - 1) + 1
    lobe: Floats = square / (peak * peak) / (4 * np.maximum(positive_cosine(half, towards), 0.3) ** 2)
    return lobe


def environment(direction: Floats) -> Floats:
    """Light (3,N) from far away along unit directions (3,N): dark zenith, brighter horizon, floor below."""
    height = direction[2]
    sky = _ZENITH + (_HORIZON - _ZENITH) * (1 - np.maximum(height, 0)) ** 3
    return np.stack([np.where(height < 0, np.float32(_FLOOR_GLOW), sky)] * 3)


def ambient_light(world: World, surface: Surface) -> Floats:
    """Linear light (3,N) from all directions, less where other objects hide the surroundings."""
    hidden = _hidden(world, surface)
    open_share = np.prod(1 - hidden, axis=0)
    upward = 0.5 + 0.5 * surface.normals[2]
    # Just above the floor, the object's own shadow darkens the floor below it.
    below = _FLOOR_GLOW * np.minimum(0.35 + 0.9 * surface.points[2], 1)
    around = (upward * 0.5 * (_ZENITH + _HORIZON) + (1 - upward) * below) * open_share
    # An object that hides nearly everything is so close that the side it shows is in shadow.
    glow = _OBJECT_GLOW * hidden * (1 - hidden)
    # One channel at a time: objects × points × channels wouldn't fit the processor's cache.
    return np.stack([around + (channel[:, None] * glow).sum(axis=0) for channel in world.albedo])


def _hidden(world: World, surface: Surface) -> Floats:
    """Share (K,N) of a point's surroundings that each object hides, taken as a sphere; 0 for the point's own object."""
    offset = world.solids.centres[:, :, None] - surface.points[:, None]
    square = dot(offset, offset)
    radii = world.solids.radii[:, None]
    cosine = np.maximum(dot(offset, surface.normals[:, None]), 0)
    share: Floats = cosine * radii * radii / (square * np.sqrt(square))
    share[surface.owner == np.arange(len(world.solids.objects))[:, None]] = 0
    return np.minimum(share, 0.9)
