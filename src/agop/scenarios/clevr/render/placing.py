"""Things at random: what they are, and where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import cos, hypot, radians, sin

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.camera import Camera
from agop.scenarios.clevr.render.things import COLORS, MATERIALS, RADIUS, SHAPES, Thing
from agop.scenarios.clevr.render.vectors import Floats

FEWEST, MOST = 3, 10
# Free floor between two things, and between their middles along CLEVR's four directions.
GAP, MARGIN = 0.25, 0.4
_REACH, _TRIES = 3.0, 50


def random_things(random: np.random.Generator) -> list[Thing]:
    """From 3 to 10 things, all of them still in the middle."""
    number = int(random.integers(FEWEST, MOST + 1))
    drawn = zip(
        random.choice(SHAPES, number).tolist(),
        random.choice(list(RADIUS), number).tolist(),
        random.choice(MATERIALS, number).tolist(),
        random.choice(list(COLORS), number).tolist(),
        random.uniform(0, 360, number).tolist(),
        strict=True,
    )
    return [Thing(shape, size, material, color, 0.0, 0.0, turned) for shape, size, material, color, turned in drawn]


def placed(random: np.random.Generator, things: Sequence[Thing], camera: Camera) -> tuple[Thing, ...] | None:
    """The things one after another where there is room, or None if one found none in 50 tries."""
    axes = camera.floor_axes()
    standing: tuple[Thing, ...] = ()
    for thing in things:
        spots = random.uniform(-_REACH, _REACH, (_TRIES, 2))
        tried = (replace(thing, x=x, y=y) for x, y in spots[_roomy(spots, standing, axes)].tolist())
        fitting = (new for new in tried if all(gap(new, old) >= GAP for old in standing))
        new = next(fitting, None)
        if new is None:
            return None
        standing = (*standing, new)
    return standing


def _roomy(spots: Floats, standing: Sequence[Thing], axes: Floats) -> NDArray[np.bool_]:
    """True (S,) for spots (S,2) that keep the margin to all that stands along both axes (2,2)."""
    middles = np.array([(thing.x, thing.y) for thing in standing]).reshape(-1, 2)
    apart = np.abs(((spots[:, None] - middles)[:, :, None] * axes).sum(axis=-1))
    roomy: NDArray[np.bool_] = (apart >= MARGIN).all(axis=(1, 2))
    return roomy


def gap(a: Thing, b: Thing) -> float:
    """The free floor between two things, negative if they overlap."""
    if a.shape != "cube":
        return _away(b, a.x, a.y) - a.radius
    if b.shape != "cube":
        return gap(b, a)
    # Two squares are closest at a corner of one of them, unless they cross: then the circles in them overlap.
    circles = hypot(a.x - b.x, a.y - b.y) - a.radius - b.radius
    corners = [_away(b, *corner) for corner in _corners(a)] + [_away(a, *corner) for corner in _corners(b)]
    return min(circles, *corners)


def _away(thing: Thing, x: float, y: float) -> float:
    """How far a place is from the floor a thing covers, negative within."""
    if thing.shape != "cube":
        return hypot(x - thing.x, y - thing.y) - thing.radius
    c, s = cos(radians(thing.rotation)), sin(radians(thing.rotation))
    along = abs(c * (x - thing.x) + s * (y - thing.y)) - thing.radius
    across = abs(c * (y - thing.y) - s * (x - thing.x)) - thing.radius
    return hypot(max(along, 0), max(across, 0)) + min(max(along, across), 0)


def _corners(cube: Thing) -> list[tuple[float, float]]:
    far = cube.radius * 2**0.5
    angles = [radians(cube.rotation + turn) for turn in (45, 135, 225, 315)]
    return [(cube.x + far * cos(angle), cube.y + far * sin(angle)) for angle in angles]
