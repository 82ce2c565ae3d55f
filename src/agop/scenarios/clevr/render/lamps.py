"""What the lamps give to a surface: light that it scatters to all sides, and highlights."""

from __future__ import annotations

import numpy as np

from agop.scenarios.clevr.render.light import Light, seen_share
from agop.scenarios.clevr.render.vectors import Floats, dot, facing, unit
from agop.scenarios.clevr.render.world import Surface, World

# Added to the squared distance: a lamp close to the floor burns no spot into it.
_SOFT = 8


def lamps(world: World, surface: Surface, rough: Floats | None = None) -> tuple[Floats, Floats]:
    """Linear light (3,N) that arrives, and highlights (3,N) for roughness (N,); without one, those stay 0."""
    arriving, highlights = np.zeros_like(surface.places), np.zeros_like(surface.places)
    for light, points in zip(world.lights, world.points, strict=True):
        towards = np.array(light.position, np.float32)[:, None] - surface.places
        distance = np.sqrt(dot(towards, towards))
        towards /= distance
        share = seen_share(world.solids, light, points, surface.places, surface.own, surface.rays.turn)
        strength = share * _strength(light, surface, towards, distance)
        color = np.array(light.color, np.float32)[:, None]
        arriving += color * strength
        if rough is not None:
            # The highlight of a wide lamp is one of a small lamp on something rougher.
            highlights += color * (strength * _lobe(surface, towards, rough + light.radius / (2 * distance)))
    return arriving, highlights


def _strength(light: Light, surface: Surface, towards: Floats, distance: Floats) -> Floats:
    """What arrives (N,) of a lamp that nothing hides: it falls with the distance and with both cosines."""
    turned = facing(unit(np.array(light.position, np.float32))[:, None], towards)
    strength: Floats = facing(surface.normals, towards) * turned / (distance * distance + _SOFT)
    return strength


def _lobe(surface: Surface, towards: Floats, rough: Floats) -> Floats:
    """GGX (N,): how much of a lamp's light towards (3,N) a rough surface mirrors to where the rays came from."""
    half = unit(towards - surface.rays.direction)
    square = rough**4
    peak = dot(surface.normals, half) ** 2 * (square - 1) + 1
    lobe: Floats = square / (peak * peak) / (4 * np.maximum(facing(half, towards), 0.3) ** 2)
    return lobe
