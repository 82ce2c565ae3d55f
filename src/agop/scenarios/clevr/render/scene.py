"""What stands where in a scene, drawn at random or as CLEVR's files tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agop.scenarios.clevr.render.camera import CAMERA, Camera
from agop.scenarios.clevr.render.light import LIGHTS, Light
from agop.scenarios.clevr.render.placing import placed, random_things
from agop.scenarios.clevr.render.seeing import first_seen
from agop.scenarios.clevr.render.things import Thing
from agop.scenarios.clevr.render.vectors import Floats, Point, dot

__all__ = ["Scene", "Thing", "random_scene"]

# The size of CLEVR's pictures, and how many of their pixels must show a thing.
WIDTH, HEIGHT, FEWEST_PIXELS = 480, 320, 200
# How much further to a side a thing must stand to be said to stand there.
_FURTHER = 0.2
_CAMERA_JITTER, _LIGHT_JITTER = 0.5, 1.0


@dataclass(frozen=True)
class Scene:
    """Things on the floor, the camera that sees them and the lamps above them."""

    things: tuple[Thing, ...]
    camera: Camera = CAMERA
    lights: tuple[Light, ...] = LIGHTS

    def official(self, index: int, split: str = "unique") -> dict[str, Any]:
        """The scene as CLEVR's JSON has it, in plain Python values; pixels are those of a 480×320 picture."""
        name = f"CLEVR_{split}_{index:06d}.png"
        directions = self.camera.directions()
        return {
            "split": split,
            "image_index": index,
            "image_filename": name,
            "mask_filename": name,
            "objects": [self._object(thing) for thing in self.things],
            "directions": directions,
            "relationships": {
                side: self._standing(np.array(directions[side])) for side in ("left", "right", "front", "behind")
            },
        }

    def _object(self, thing: Thing) -> dict[str, Any]:
        across, down, depth = self.camera.project(thing.centre)
        return {
            "shape": thing.shape,
            "size": thing.size,
            "material": thing.material,
            "3d_coords": [float(part) for part in thing.centre],
            "rotation": float(thing.rotation),
            "pixel_coords": [round(across * WIDTH), round(down * HEIGHT), depth],
            "color": thing.color,
        }

    def _standing(self, side: Floats) -> list[list[int]]:
        """For each thing, the others that stand on that side of it."""
        along = [float(dot(side, np.array(thing.centre))) for thing in self.things]
        return [[other for other, far in enumerate(along) if far - here > _FURTHER] for here in along]


def random_scene(seed: int, index: int) -> Scene:
    """The scene of that number in the series of a seed: always the same one."""
    random = np.random.default_rng([seed, index])
    camera = Camera(_jittered(random, CAMERA.position, _CAMERA_JITTER))
    lights = tuple(replace(light, position=_jittered(random, light.position, _LIGHT_JITTER)) for light in LIGHTS)
    things = random_things(random)
    while True:
        standing = placed(random, things, camera)
        if standing is not None and _all_seen(standing, camera):
            return Scene(standing, camera, lights)


def _jittered(random: np.random.Generator, position: Point, by: float) -> Point:
    x, y, z = (np.array(position) + random.uniform(-by, by, 3)).tolist()
    return x, y, z


def _all_seen(things: tuple[Thing, ...], camera: Camera) -> bool:
    """Whether each thing shows on at least 200 pixels of a 480×320 picture."""
    seen = first_seen(things, camera, WIDTH, HEIGHT)
    return bool((np.bincount(seen[seen >= 0], minlength=len(things)) >= FEWEST_PIXELS).all())
