"""Render CLEVR-like scenes: light, shading, images and exact masks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import agop.bench.scenarios.clevr_scene as geometry
from agop.bench.scenarios.clevr_scene import Floats, Ints, Lamp, Rays, Scene, SceneObject, Solids, dot, unit

# CLEVR uses its colour values as linear light, which looks pale. As sRGB (2.2) they look dark. With an exponent in
# between, all eight colours are easy to distinguish.
_GAMMA = 1.4
_JITTER = 0.05


class World:
    """Objects with linear colours (3,K), metal or not (K,), and lamps with shadow-ray targets (3,samples,points).

    `jitter` (3,samples), even over a small sphere, is added to a mirror's normal: a pixel's rays blur a mirror image.
    """

    def __init__(self, objects: Sequence[SceneObject], lamps: Sequence[Lamp], samples: int) -> None:
        self.solids, self.lamps = Solids(objects, np.float32), lamps
        colors = np.array([geometry.COLORS[each.color] for each in objects], np.float32).reshape(-1, 3).T / 255
        self.albedo = colors**_GAMMA
        self.metal = np.array([each.material == "metal" for each in objects], bool)
        self.lamp_points = [lamp.points(samples).astype(np.float32) for lamp in lamps]
        number = np.arange(samples)
        height, angle = 1 - (2 * number + 1) / samples, number * geometry.GOLDEN_ANGLE
        ring = np.sqrt(1 - height * height)
        sphere = np.stack([ring * np.cos(angle), ring * np.sin(angle), height])
        self.jitter = np.asarray(_JITTER * (sphere - sphere.mean(axis=1, keepdims=True)), np.float32)


class Surface:
    """Points (3,N) that rays hit after distances (N,), their unit normals (3,N), and their objects or floor (N,)."""

    def __init__(self, solids: Solids, rays: Rays, distance: Floats, owner: Ints) -> None:
        self.rays, self.owner = rays, owner
        self.points = rays.origin + distance * rays.direction
        self.normals = np.zeros_like(self.points)
        self.normals[2] = 1
        for index in np.unique(owner[owner >= 0]).tolist():
            of_object = np.flatnonzero(owner == index)
            self.normals[:, of_object] = solids.normals(index, self.points[:, of_object])


# Added to the squared distance, so that a lamp close to the floor makes no glaring spot.
_SOFTENING = 8
_ZENITH, _HORIZON = 0.16, 0.34
# Light that the floor, and an object of albedo 1, reflect onto their surroundings.
_FLOOR_GLOW, _OBJECT_GLOW = 0.30, 0.35


def direct_light(world: World, surface: Surface, roughness: Floats | None = None) -> tuple[Floats, Floats]:
    """Linear light (3,N) from the lamps, and their highlights (3,N) for a roughness (N,), 0 without one."""
    arriving, highlights = np.zeros_like(surface.points), np.zeros_like(surface.points)
    hits = surface.points, surface.owner, surface.rays.sample
    for lamp, lamp_points in zip(world.lamps, world.lamp_points, strict=True):
        towards = np.array(lamp.position, np.float32)[:, None] - surface.points
        distance = np.sqrt(dot(towards, towards))
        towards /= distance
        share = geometry.visible_share(world.solids, lamp, lamp_points, *hits)
        # An unhidden lamp's light falls with the distance and with the cosines at the lamp and the surface.
        at_lamp = np.maximum(dot(unit(np.array(lamp.position, np.float32))[:, None], towards), 0)
        strength = share * (np.maximum(dot(surface.normals, towards), 0) * at_lamp / (distance * distance + _SOFTENING))
        color = np.array(lamp.color, np.float32)[:, None]
        arriving += color * strength
        if roughness is not None:
            # The highlight of a large lamp looks like that of a small lamp on a rougher surface.
            square = (roughness + lamp.radius / (2 * distance)) ** 4
            half = unit(towards - surface.rays.direction)
            peak = dot(surface.normals, half) ** 2 * (square - 1) + 1
            # GGX lobe: the share of the light that the surface reflects back along its rays.
            lobe = square / (peak * peak) / (4 * np.maximum(dot(half, towards), 0.3) ** 2)
            highlights += color * (strength * lobe)
    return arriving, highlights


def ambient_light(world: World, surface: Surface) -> Floats:
    """Linear light (3,N) from all directions, less where other objects hide the surroundings."""
    # Share (K,N) of a point's surroundings that each object hides, taken as a sphere; 0 for the point's own object.
    offset = world.solids.centres[:, :, None] - surface.points[:, None]
    square = dot(offset, offset)
    radii = world.solids.radii[:, None]
    cosine = np.maximum(dot(offset, surface.normals[:, None]), 0)
    hidden = np.minimum(cosine * radii * radii / (square * np.sqrt(square)), 0.9)
    hidden[surface.owner == np.arange(len(world.solids.objects))[:, None]] = 0
    open_share = np.prod(1 - hidden, axis=0)
    upward = 0.5 + 0.5 * surface.normals[2]
    # Just above the floor, the object's own shadow darkens the floor below it.
    below = _FLOOR_GLOW * np.minimum(0.35 + 0.9 * surface.points[2], 1)
    around = (upward * 0.5 * (_ZENITH + _HORIZON) + (1 - upward) * below) * open_share
    # An object that hides nearly everything is so close that the side it shows is in shadow.
    glow = _OBJECT_GLOW * hidden * (1 - hidden)
    # One channel at a time: objects × points × channels wouldn't fit the processor's cache.
    return np.stack([around + (channel[:, None] * glow).sum(axis=0) for channel in world.albedo])


_FLOOR_ALBEDO = (0.50, 0.495, 0.49)
_RUBBER_ROUGHNESS, _METAL_ROUGHNESS = 0.45, 0.26
# Extra roughness of a mirrored highlight, which is blurred twice. Without it, a pixel's few rays show it as dots.
_MIRRORED_ROUGHNESS = 0.2
# Strength of rubber's highlights, and of metal's diffuse reflection.
_SPECULAR, _DIFFUSE = 0.04, 0.08


def radiance(world: World, rays: Rays, bounces: int = 3) -> Floats:
    """Linear light (3,N) that arrives along rays, after at most that many mirror reflections."""
    # From far away: dark zenith, brighter horizon, floor below.
    height = rays.direction[2]
    sky = _ZENITH + (_HORIZON - _ZENITH) * (1 - np.maximum(height, 0)) ** 3
    light = np.stack([np.where(height < 0, np.float32(_FLOOR_GLOW), sky)] * 3)
    if bounces < 0:
        return light
    distance, target = world.solids.first_hit(rays)
    floor, objects = target == geometry.FLOOR, target >= 0
    if floor.any():
        surface = Surface(world.solids, rays.at(floor), distance[floor], target[floor])
        arriving, _ = direct_light(world, surface)
        albedo = np.array(_FLOOR_ALBEDO, np.float32)[:, None]
        light[:, floor] = albedo * (arriving + ambient_light(world, surface))
    if objects.any():
        surface = Surface(world.solids, rays.at(objects), distance[objects], target[objects])
        light[:, objects] = _objects(world, surface, bounces)
    return light


def _objects(world: World, surface: Surface, bounces: int) -> Floats:
    color, metal = world.albedo[:, surface.owner], world.metal[surface.owner]
    mirrored = surface.rays.source >= 0
    roughness = np.where(metal, _METAL_ROUGHNESS, _RUBBER_ROUGHNESS) + np.where(mirrored, _MIRRORED_ROUGHNESS, 0)
    arriving, highlights = direct_light(world, surface, roughness.astype(np.float32))
    diffuse = color * (arriving + ambient_light(world, surface))
    light: Floats = np.where(metal, _DIFFUSE * diffuse + color * highlights, diffuse + _SPECULAR * highlights)
    if metal.any():
        rays = surface.rays.at(metal)
        normals = unit(surface.normals[:, metal] + world.jitter[:, rays.sample])
        # Near the silhouette a bevel's normal may face away from the ray, which must not be reflected into the object.
        cosine = np.maximum(-dot(normals, rays.direction), 0)
        reflected = unit(rays.direction + 2 * cosine * normals)
        mirror = Rays(surface.points[:, metal], reflected, surface.owner[metal], rays.sample)
        light[:, metal] += color[:, metal] * radiance(world, mirror, bounces - 1)
    return light


# Light up to here is shown unchanged; brighter light approaches white smoothly.
_KNEE = 0.6


def render(scene: Scene, width: int, height: int, rays: int = 3) -> NDArray[np.uint8]:
    """Image (H,W,3), with rays×rays rays per pixel. The camera's frame is 3:2 for every width and height."""
    world = World(scene.objects, scene.lamps, rays * rays)
    blocks = []
    for rows in geometry.row_blocks(width, height, rays):
        light = radiance(world, geometry.pixel_rays(scene.camera, width, height, rows, rays, np.float32))
        # Tone-mapped before the mean: one ray that hits a lamp's mirror image must not whiten the whole pixel.
        above = np.maximum(light - _KNEE, 0) / (1 - _KNEE)
        mapped = np.minimum(light, _KNEE) + (1 - _KNEE) * np.tanh(above)
        blocks.append(mapped.reshape(3, -1, len(rows), width).mean(axis=1))
    return np.moveaxis(srgb(np.concatenate(blocks, axis=1)), 0, -1).copy()


def object_masks(scene: Scene, width: int, height: int) -> NDArray[np.bool_]:
    """Masks (objects,H,W), true where a pixel's centre shows that object."""
    visible = geometry.visible_objects(scene.objects, scene.camera, width, height)
    return np.asarray(visible == np.arange(len(scene.objects))[:, None, None])


def srgb(light: Floats) -> NDArray[np.uint8]:
    """Linear light from 0 to 1 as sRGB bytes."""
    low, high = 12.92 * light, 1.055 * np.maximum(light, 0.0031308) ** (1 / 2.4) - 0.055
    return np.round(255 * np.where(light <= 0.0031308, low, high)).astype(np.uint8)
