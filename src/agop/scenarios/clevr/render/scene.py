"""A scene: objects, camera and lamps; random scenes from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agop.scenarios.clevr.render.camera import CAMERA, Camera
from agop.scenarios.clevr.render.lamps import LAMPS, Lamp
from agop.scenarios.clevr.render.layout import place, random_objects
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.vectors import Point
from agop.scenarios.clevr.render.visibility import visible_objects

# The size of CLEVR's images, and the fewest of their pixels that must show an object.
WIDTH, HEIGHT, FEWEST_PIXELS = 480, 320, 200
_CAMERA_JITTER, _LAMP_JITTER = 0.5, 1.0


@dataclass(frozen=True)
class Scene:
    """Objects on the floor, the camera and the lamps."""

    objects: tuple[SceneObject, ...]
    camera: Camera = CAMERA
    lamps: tuple[Lamp, ...] = LAMPS


def random_scene(seed: int, index: int) -> Scene:
    """The scene of that index in a seed's series. Each object shows on at least 200 pixels of a 480×320 image."""
    random, camera, lamps, objects = _draft(seed, index)
    while True:
        placed = place(random, objects, camera)
        if placed is not None and _all_visible(placed, camera):
            return Scene(placed, camera, lamps)


def scene_objects(seed: int, index: int) -> list[SceneObject]:
    """The objects of `random_scene` before they are placed, which takes a hundred times longer."""
    return _draft(seed, index)[-1]


def _draft(seed: int, index: int) -> tuple[np.random.Generator, Camera, tuple[Lamp, ...], list[SceneObject]]:
    random = np.random.default_rng([seed, index])
    camera = Camera(_jittered(random, CAMERA.position, _CAMERA_JITTER))
    lamps = tuple(replace(lamp, position=_jittered(random, lamp.position, _LAMP_JITTER)) for lamp in LAMPS)
    return random, camera, lamps, random_objects(random)


def _jittered(random: np.random.Generator, position: Point, amount: float) -> Point:
    x, y, z = (np.array(position) + random.uniform(-amount, amount, 3)).tolist()
    return x, y, z


def _all_visible(objects: tuple[SceneObject, ...], camera: Camera) -> bool:
    visible = visible_objects(objects, camera, WIDTH, HEIGHT)
    return bool((np.bincount(visible[visible >= 0], minlength=len(objects)) >= FEWEST_PIXELS).all())
