"""Random objects, and free positions for them on the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import cos, hypot, radians, sin

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.render.camera import Camera
from agop.scenarios.clevr.render.objects import COLORS, MATERIALS, RADIUS, SHAPES, SceneObject
from agop.scenarios.clevr.render.vectors import Floats

FEWEST, MOST = 3, 10
# Minimum gap between two objects, and minimum distance of their centres along each of the camera's floor axes.
GAP, MARGIN = 0.25, 0.4
_HALF_FLOOR, _TRIES = 3.0, 50


def random_objects(random: np.random.Generator) -> list[SceneObject]:
    """From 3 to 10 objects, all of them still at the origin."""
    number = int(random.integers(FEWEST, MOST + 1))
    attributes = zip(
        random.choice(SHAPES, number).tolist(),
        random.choice(list(RADIUS), number).tolist(),
        random.choice(MATERIALS, number).tolist(),
        random.choice(list(COLORS), number).tolist(),
        random.uniform(0, 360, number).tolist(),
        strict=True,
    )
    return [
        SceneObject(shape, size, material, color, 0.0, 0.0, angle) for shape, size, material, color, angle in attributes
    ]


def place(
    random: np.random.Generator, objects: Sequence[SceneObject], camera: Camera
) -> tuple[SceneObject, ...] | None:
    """The objects at free positions, one after another; None if 50 tries weren't enough for one of them."""
    axes = camera.floor_axes()
    placed: tuple[SceneObject, ...] = ()
    for each in objects:
        positions = random.uniform(-_HALF_FLOOR, _HALF_FLOOR, (_TRIES, 2))
        positions = positions[_keep_margin(positions, placed, axes)]
        moved = (replace(each, x=x, y=y) for x, y in positions.tolist())
        fitting = next((new for new in moved if all(gap(new, old) >= GAP for old in placed)), None)
        if fitting is None:
            return None
        placed = (*placed, fitting)
    return placed


def _keep_margin(positions: Floats, placed: Sequence[SceneObject], axes: Floats) -> NDArray[np.bool_]:
    """True (P,) for positions (P,2) that keep the margin from all placed objects along both axes (2,2)."""
    centres = np.array([(each.x, each.y) for each in placed]).reshape(-1, 2)
    apart = np.abs(((positions[:, None] - centres)[:, :, None] * axes).sum(axis=-1))
    far_enough: NDArray[np.bool_] = (apart >= MARGIN).all(axis=(1, 2))
    return far_enough


def gap(a: SceneObject, b: SceneObject) -> float:
    """Distance between the footprints of two objects, negative if they overlap."""
    if a.shape != "cube":
        return _distance(b, a.x, a.y) - a.radius
    if b.shape != "cube":
        return gap(b, a)
    # Two squares are closest at a corner of one of them, unless they cross: then their inscribed circles overlap.
    circles = hypot(a.x - b.x, a.y - b.y) - a.radius - b.radius
    corners = [_distance(b, *corner) for corner in _corners(a)] + [_distance(a, *corner) for corner in _corners(b)]
    return min(circles, *corners)


def _distance(footprint: SceneObject, x: float, y: float) -> float:
    """Distance of a point on the floor from an object's footprint, negative inside."""
    if footprint.shape != "cube":
        return hypot(x - footprint.x, y - footprint.y) - footprint.radius
    c, s = cos(radians(footprint.rotation)), sin(radians(footprint.rotation))
    along = abs(c * (x - footprint.x) + s * (y - footprint.y)) - footprint.radius
    across = abs(c * (y - footprint.y) - s * (x - footprint.x)) - footprint.radius
    return hypot(max(along, 0), max(across, 0)) + min(max(along, across), 0)


def _corners(cube: SceneObject) -> list[tuple[float, float]]:
    diagonal = cube.radius * 2**0.5
    angles = [radians(cube.rotation + turn) for turn in (45, 135, 225, 315)]
    return [(cube.x + diagonal * cos(angle), cube.y + diagonal * sin(angle)) for angle in angles]
