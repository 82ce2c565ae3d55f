"""Pictures of scenes by casting rays, and exact masks of their things."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError
from agop.scenarios.clevr.render.scene import Scene
from agop.scenarios.clevr.render.seeing import first_seen, pixel_rays, strips
from agop.scenarios.clevr.render.shading import radiance
from agop.scenarios.clevr.render.vectors import Floats, Ints
from agop.scenarios.clevr.render.world import World

# Light up to here is shown as it is; what is brighter runs smoothly into white.
_KNEE = 0.6


def render(scene: Scene, width: int, height: int, rays: int = 3) -> NDArray[np.uint8]:
    """The picture (H,W,3) from rays×rays a pixel; the camera's frame is 3:2, whatever the width and height."""
    _check(width=width, height=height, rays=rays)
    world = World.of(scene.things, scene.lights, rays * rays)
    light = [_strip(scene, world, rows, width, height, rays) for rows in strips(width, height, rays)]
    return np.moveaxis(srgb(np.concatenate(light, axis=1)), 0, -1).copy()


def object_masks(scene: Scene, width: int, height: int) -> NDArray[np.bool_]:
    """Masks (objects,H,W), true where a pixel's centre shows that thing."""
    _check(width=width, height=height)
    seen = first_seen(scene.things, scene.camera, width, height)
    masks: NDArray[np.bool_] = seen == np.arange(len(scene.things))[:, None, None]
    return masks


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} is {size}: give at least 1")


def _strip(scene: Scene, world: World, rows: Ints, width: int, height: int, rays: int) -> Floats:
    """Linear light (3,rows,W) of some rows."""
    cast = pixel_rays(scene.camera, width, height, rows, rays, np.float32)
    # Toned before the mean: one ray into a lamp's mirror image must not whiten its whole pixel.
    light: Floats = _toned(radiance(world, cast)).reshape(3, -1, len(rows), width).mean(axis=1)
    return light


def _toned(light: Floats) -> Floats:
    above = np.maximum(light - _KNEE, 0) / (1 - _KNEE)
    toned: Floats = np.minimum(light, _KNEE) + (1 - _KNEE) * np.tanh(above)
    return toned


def srgb(light: Floats) -> NDArray[np.uint8]:
    """Linear light from 0 to 1 as sRGB bytes."""
    low, high = 12.92 * light, 1.055 * np.maximum(light, 0.0031308) ** (1 / 2.4) - 0.055
    return np.round(255 * np.where(light <= 0.0031308, low, high)).astype(np.uint8)
