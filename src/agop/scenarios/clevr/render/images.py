"""Images of scenes, and exact masks of their objects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError
from agop.scenarios.clevr.render.scene import Scene
from agop.scenarios.clevr.render.shading import radiance
from agop.scenarios.clevr.render.vectors import Floats, Ints
from agop.scenarios.clevr.render.visibility import pixel_rays, row_blocks, visible_objects
from agop.scenarios.clevr.render.world import World

# Light up to here is shown unchanged; brighter light approaches white smoothly.
_KNEE = 0.6


def render(scene: Scene, width: int, height: int, rays: int = 3) -> NDArray[np.uint8]:
    """Image (H,W,3), with rays×rays rays per pixel. The camera's frame is 3:2 for every width and height."""
    _check(width=width, height=height, rays=rays)
    world = World.of(scene.objects, scene.lamps, rays * rays)
    light = [_rows(scene, world, rows, width, height, rays) for rows in row_blocks(width, height, rays)]
    return np.moveaxis(srgb(np.concatenate(light, axis=1)), 0, -1).copy()


def object_masks(scene: Scene, width: int, height: int) -> NDArray[np.bool_]:
    """Masks (objects,H,W), true where a pixel's centre shows that object."""
    _check(width=width, height=height)
    visible = visible_objects(scene.objects, scene.camera, width, height)
    masks: NDArray[np.bool_] = visible == np.arange(len(scene.objects))[:, None, None]
    return masks


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} is {size}: pass at least 1")


def _rows(scene: Scene, world: World, rows: Ints, width: int, height: int, rays: int) -> Floats:
    """Linear light (3,rows,W) of some rows."""
    cast = pixel_rays(scene.camera, width, height, rows, rays, np.float32)
    # Tone-mapped before the mean: one ray that hits a lamp's mirror image must not whiten the whole pixel.
    light: Floats = _tone_mapped(radiance(world, cast)).reshape(3, -1, len(rows), width).mean(axis=1)
    return light


def _tone_mapped(light: Floats) -> Floats:
    above = np.maximum(light - _KNEE, 0) / (1 - _KNEE)
    mapped: Floats = np.minimum(light, _KNEE) + (1 - _KNEE) * np.tanh(above)
    return mapped


def srgb(light: Floats) -> NDArray[np.uint8]:
    """Linear light from 0 to 1 as sRGB bytes."""
    low, high = 12.92 * light, 1.055 * np.maximum(light, 0.0031308) ** (1 / 2.4) - 0.055
    return np.round(255 * np.where(light <= 0.0031308, low, high)).astype(np.uint8)
