"""Where rays meet a shape of half-width 1 around the origin, and which way its surface faces there."""

from __future__ import annotations

import numpy as np

from agop.scenarios.clevr.render.vectors import Floats, unit

# How far a ball around the centre must reach to hold the shape.
REACH = {"sphere": 1.0, "cylinder": 2**0.5, "cube": 3**0.5}
_BEVEL = 0.11
# A ray along a face has no crossing with it; one that leans by this much has one, far away.
_TINY = 1e-9


def entry(shape: str, origin: Floats, direction: Floats) -> Floats:
    """How many directions (3,…) from the origin (3,…) a ray enters the shape, inf where it misses it: (…)."""
    if shape == "sphere":
        enter, leave = _ball(origin, direction)
    elif shape == "cube":
        enter, leave = _between(origin, direction)
        enter, leave = enter.max(axis=0), leave.min(axis=0)
    else:
        enter, leave = _ball(origin[:2], direction[:2])
        top, bottom = _between(origin[2], direction[2])
        enter, leave = np.maximum(enter, top), np.minimum(leave, bottom)
    return np.where((enter < leave) & (enter > 0), enter, np.inf)


def _ball(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the unit ball, or the endless upright cylinder if vectors have two components."""
    a = np.maximum((direction * direction).sum(axis=0), _TINY)
    b = (origin * direction).sum(axis=0)
    inside = b * b - a * ((origin * origin).sum(axis=0) - 1)
    root = np.sqrt(np.maximum(inside, 0))
    # A miss enters at inf, and so after every exit, also when its stretch is cut with another.
    enter = np.where(inside > 0, (-b - root) / a, np.inf)
    return enter, (-b + root) / a


def _between(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the space between −1 and 1, along each component."""
    inverse = 1 / np.where(np.abs(direction) < _TINY, _TINY, direction)
    middle, half = -origin * inverse, np.abs(inverse)
    return middle - half, middle + half


def normal(shape: str, point: Floats) -> Floats:
    """Outward unit vectors (3,N) at points (3,N) of the surface; edges of cubes and cylinders look rounded."""
    if shape == "sphere":
        return unit(point)
    if shape == "cube":
        return unit(np.sign(point) * _edge(np.abs(point)))
    wide = np.sqrt(point[0] ** 2 + point[1] ** 2)
    around = _edge(wide) / np.maximum(wide, _TINY)
    return unit(np.stack([point[0] * around, point[1] * around, np.sign(point[2]) * _edge(np.abs(point[2]))]))


def _edge(distance: Floats) -> Floats:
    """0 in the middle of a face and 1 at its edge, rising only within the bevel."""
    return np.clip((distance - (1 - _BEVEL)) / _BEVEL, 0, 1)
