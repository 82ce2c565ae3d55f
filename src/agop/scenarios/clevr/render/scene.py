"""What stands where in a scene, drawn at random or as CLEVR's files tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agop.scenarios.clevr.render.camera import CAMERA, Camera
from agop.scenarios.clevr.render.light import LIGHTS, Light
from agop.scenarios.clevr.render.placing import placed, random_things
from agop.scenarios.clevr.render.seeing import first_seen
from agop.scenarios.clevr.render.things import Thing
from agop.scenarios.clevr.render.vectors import Point

__all__ = ["Scene", "Thing", "random_scene"]

# The size of CLEVR's pictures, and how many of their pixels must show a thing.
WIDTH, HEIGHT, FEWEST_PIXELS = 480, 320, 200
_CAMERA_JITTER, _LIGHT_JITTER = 0.5, 1.0


@dataclass(frozen=True)
class Scene:
    """Things on the floor, the camera that sees them and the lamps above them."""

    things: tuple[Thing, ...]
    camera: Camera = CAMERA
    lights: tuple[Light, ...] = LIGHTS


def random_scene(seed: int, index: int) -> Scene:
    """The scene of that number in the series of a seed: always the same one."""
    random, camera, lights, things = _draft(seed, index)
    while True:
        standing = placed(random, things, camera)
        if standing is not None and _all_seen(standing, camera):
            return Scene(standing, camera, lights)


def scene_objects(seed: int, index: int) -> list[Thing]:
    """The things of `random_scene`, before they are placed, which takes a hundred times longer."""
    return _draft(seed, index)[-1]


def _draft(seed: int, index: int) -> tuple[np.random.Generator, Camera, tuple[Light, ...], list[Thing]]:
    random = np.random.default_rng([seed, index])
    camera = Camera(_jittered(random, CAMERA.position, _CAMERA_JITTER))
    lights = tuple(replace(light, position=_jittered(random, light.position, _LIGHT_JITTER)) for light in LIGHTS)
    return random, camera, lights, random_things(random)


def _jittered(random: np.random.Generator, position: Point, by: float) -> Point:
    x, y, z = (np.array(position) + random.uniform(-by, by, 3)).tolist()
    return x, y, z


def _all_seen(things: tuple[Thing, ...], camera: Camera) -> bool:
    """Whether each thing shows on at least 200 pixels of a 480×320 picture."""
    seen = first_seen(things, camera, WIDTH, HEIGHT)
    return bool((np.bincount(seen[seen >= 0], minlength=len(things)) >= FEWEST_PIXELS).all())
