"""CLEVR-like scenes: objects, camera, lamps, and the geometry of rays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import cos, hypot, radians, sin, tan
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Point = tuple[float, float, float]


def dot(a: Floats, b: Floats) -> Floats:
    """Inner products (…) of vectors (3,…)."""
    # Not a matrix product: its order of summation depends on the machine and the number of threads.
    return np.asarray(a[0] * b[0] + a[1] * b[1] + a[2] * b[2])


def unit(a: Floats) -> Floats:
    """Vectors (3,…) scaled to length 1."""
    return np.asarray(a / np.sqrt(dot(a, a)))


SHAPES = ("cube", "sphere", "cylinder")
# In the order of the labels.
MATERIALS = ("metal", "rubber")
# Half an object's height and width.
RADIUS = {"large": 0.7, "small": 0.35}
COLORS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}


@dataclass(frozen=True)
class SceneObject:
    """An object on the floor at (x, y), rotated by `rotation` degrees about its vertical axis."""

    shape: str
    size: str
    material: str
    color: str
    x: float
    y: float
    rotation: float

    @property
    def radius(self) -> float:
        """Half its height and width."""
        return RADIUS[self.size]

    @property
    def centre(self) -> Point:
        """Its centre. The floor is at z = 0."""
        return self.x, self.y, self.radius


# Half the frame's width at distance 1. The frame is 3:2 for every image size: a square image is squeezed.
_HALF_WIDTH = tan(radians(49.1) / 2)
_HALF_HEIGHT = _HALF_WIDTH / 1.5


@dataclass(frozen=True)
class Camera:
    """A camera that looks at the origin, with the floor's normal pointing up in the image."""

    position: Point

    def axes(self) -> tuple[Floats, Floats, Floats]:
        """Unit vectors (3,): right, up and forward."""
        forward = unit(-np.array(self.position))
        right = unit(np.array([forward[1], -forward[0], 0.0]))
        return right, np.cross(right, forward), forward

    def floor_axes(self) -> Floats:
        """Unit vectors (2,2) along the floor: right, and away from the camera."""
        right, _, forward = self.axes()
        return np.stack([right[:2], unit(forward * [1, 1, 0])[:2]])

    def rays(self, across: Floats, down: Floats) -> Floats:
        """Unit directions (3,…) through points of the frame, given from 0 to 1 from its upper left corner."""
        right, up, forward = (axis.reshape(3, *(1,) * across.ndim) for axis in self.axes())
        through = forward + _HALF_WIDTH * (2 * across - 1) * right + _HALF_HEIGHT * (1 - 2 * down) * up
        return unit(through)


CAMERA = Camera((7.48, -6.51, 5.34))


# What a ray hits, or starts from, if not an object's index.
FLOOR, NOTHING = -1, -2
# Radius of the bounding sphere of a shape of half-width 1.
BOUND = {"sphere": 1.0, "cylinder": 2**0.5, "cube": 3**0.5}
_BEVEL = 0.11
# A ray parallel to a face never crosses it; one tilted by this much crosses it far away.
_TINY = 1e-9


@dataclass(frozen=True)
class Rays:
    """Rays from origins (3,N) along unit directions (3,N).

    `source` (N,) is the object a ray starts from, `sample` (N,) the ray's number within its pixel.
    """

    origin: Floats
    direction: Floats
    source: Ints
    sample: Ints

    def at(self, selected: NDArray[np.bool_]) -> Rays:
        """The rays selected by a mask (N,)."""
        return Rays(self.origin[:, selected], self.direction[:, selected], self.source[selected], self.sample[selected])


class Solids:
    """Objects as arrays: centres (3,K), radii (K,) and radii of their bounding spheres (K,)."""

    def __init__(self, objects: Sequence[SceneObject], dtype: DTypeLike = np.float64) -> None:
        self.objects = objects
        self.centres = np.array([each.centre for each in objects], dtype).reshape(-1, 3).T
        self.radii = np.array([each.radius for each in objects], dtype)
        self.bounds = self.radii * np.array([BOUND[each.shape] for each in objects], dtype)

    def first_hit(self, rays: Rays) -> tuple[Floats, Ints]:
        """Distance (N,) to each ray's first hit, and what it hits (N,): an object's index, FLOOR or NOTHING."""
        origin, direction = rays.origin, rays.direction
        falls = direction[2] < 0
        distance = np.where(falls, -origin[2] / np.where(falls, direction[2], -1), np.inf).astype(direction.dtype)
        target = np.where(falls, FLOOR, NOTHING)
        for index, is_near in enumerate(self.near(origin, direction, np.zeros_like(direction[0]))):
            near = np.flatnonzero(is_near & (rays.source != index))
            if len(near):
                entries = self.entry(index, origin[:, near], direction[:, near])
                closer = entries < distance[near]
                distance[near[closer]], target[near[closer]] = entries[closer], index
        return distance, target

    def near(self, origin: Floats, direction: Floats, slope: Floats) -> NDArray[np.bool_]:
        """True (K,N) where an object's bounding sphere touches a ray's cone, or the ray if its slope (N,) is 0."""
        offset = self.centres[:, :, None] - origin[:, None]
        along = dot(offset, direction[:, None])
        bound = self.bounds[:, None]
        reach = bound * np.sqrt(1 + slope * slope) + slope * np.maximum(along, 0)
        return np.asarray((dot(offset, offset) - along * along < reach * reach) & (along > -bound))

    def entry(self, index: int, origin: Floats, direction: Floats) -> Floats:
        """Where rays enter one object (…), in multiples of their directions (3,…); inf where they miss it."""
        towards = self._rotated(index, direction) / self.radii[index]
        return entry(self.objects[index].shape, self._local(index, origin), towards)

    def normals(self, index: int, points: Floats) -> Floats:
        """Outward unit normals (3,N) at points (3,N) on one object's surface."""
        return self._rotated(index, normal(self.objects[index].shape, self._local(index, points)), back=True)

    def _local(self, index: int, points: Floats) -> Floats:
        """Points (3,…) in the object's own coordinates, in which its half-width is 1."""
        centre = self.centres[:, index].reshape(3, *(1,) * (points.ndim - 1))
        return np.asarray(self._rotated(index, points - centre) / self.radii[index])

    def _rotated(self, index: int, vectors: Floats, back: bool = False) -> Floats:
        if self.objects[index].shape != "cube":
            return vectors
        angle = radians(self.objects[index].rotation)
        c, s = cos(angle), sin(angle) * (-1 if back else 1)
        x, y, z = vectors
        return np.stack([c * x + s * y, c * y - s * x, z])


def entry(shape: str, origin: Floats, direction: Floats) -> Floats:
    """Where rays enter a shape of half-width 1 at the origin (…), in multiples of directions (3,…); inf if missed."""
    if shape == "sphere":
        enter, leave = _sphere(origin, direction)
    elif shape == "cube":
        enter, leave = _slab(origin, direction)
        enter, leave = enter.max(axis=0), leave.min(axis=0)
    else:
        enter, leave = _sphere(origin[:2], direction[:2])
        top, bottom = _slab(origin[2], direction[2])
        enter, leave = np.maximum(enter, top), np.minimum(leave, bottom)
    return np.where((enter < leave) & (enter > 0), enter, np.inf)


def _sphere(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the unit sphere; from the infinite vertical cylinder for two components."""
    a = np.maximum((direction * direction).sum(axis=0), _TINY)
    b = (origin * direction).sum(axis=0)
    discriminant = b * b - a * ((origin * origin).sum(axis=0) - 1)
    root = np.sqrt(np.maximum(discriminant, 0))
    # A miss enters at inf, after every exit, also when this interval is intersected with another.
    enter = np.where(discriminant > 0, (-b - root) / a, np.inf)
    return enter, (-b + root) / a


def _slab(origin: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """Entry into and exit from the slab between −1 and 1, for each component."""
    inverse = 1 / np.where(np.abs(direction) < _TINY, _TINY, direction)
    middle, half = -origin * inverse, np.abs(inverse)
    return middle - half, middle + half


def normal(shape: str, point: Floats) -> Floats:
    """Outward unit normals (3,N) at surface points (3,N). Edges of cubes and cylinders are shaded as if bevelled."""
    if shape == "sphere":
        return unit(point)
    if shape == "cube":
        return unit(np.sign(point) * _edge(np.abs(point)))
    radius = np.sqrt(point[0] ** 2 + point[1] ** 2)
    around = _edge(radius) / np.maximum(radius, _TINY)
    return unit(np.stack([point[0] * around, point[1] * around, np.sign(point[2]) * _edge(np.abs(point[2]))]))


def _edge(distance: Floats) -> Floats:
    """A ramp from 0 to 1 across the bevel: 0 inside a face, 1 at its edge."""
    return np.clip((distance - (1 - _BEVEL)) / _BEVEL, 0, 1)


GOLDEN_ANGLE = np.pi * (3 - 5**0.5)
# Shadow rays per lamp, over all rays of a pixel: enough for soft shadows without visible steps.
_POINTS = 36


@dataclass(frozen=True)
class Lamp:
    """A disc that faces the origin: position, radius, and linear colour times power."""

    position: Point
    radius: float
    color: Point

    def points(self, samples: int) -> Floats:
        """Points on the disc (3,samples,points), others for each ray of a pixel. All pixels share them: no noise."""
        count = -(-_POINTS // samples)
        # A sunflower spiral is even over the disc, and so is every stride through it.
        number = np.arange(samples * count)
        radius, angle = self.radius * np.sqrt((number + 0.5) / len(number)), number * GOLDEN_ANGLE
        position = np.array(self.position)
        side = unit(np.array([-position[1], position[0], 0.0]))
        around = np.outer(side, np.cos(angle)) + np.outer(np.cross(unit(position), side), np.sin(angle))
        return np.asarray((position[:, None] + radius * around).reshape(3, count, samples).swapaxes(1, 2))


# Key lamp (warmer, and about four times as strong as the fill), fill lamp and back lamp.
LAMPS = (
    Lamp((6.4, -2.9, 4.3), 0.7, (30.0, 28.5, 26.5)),
    Lamp((-4.7, -4.0, 3.0), 1.0, (7.0, 7.4, 7.8)),
    Lamp((-1.2, 2.6, 5.8), 0.7, (10.0, 10.0, 10.0)),
)


def visible_share(solids: Solids, lamp: Lamp, lamp_points: Floats, points: Floats, owner: Ints, sample: Ints) -> Floats:
    """Share (N,) of a lamp's points (3,samples,points) that no object hides from points (3,N).

    An object never hides the lamp from its own surface (`owner`): where that faces away, the cosine is already 0.
    """
    free = np.ones((lamp_points.shape[2], points.shape[1]), bool)
    path = np.array(lamp.position, points.dtype)[:, None] - points
    length = np.sqrt(dot(path, path))
    for index, may_hide in enumerate(solids.near(points, path / length, lamp.radius / length)):
        tested = np.flatnonzero(may_hide & (owner != index))
        if len(tested):
            start = points[:, None, tested]
            towards = lamp_points[:, sample[tested]].swapaxes(1, 2) - start
            free[:, tested] &= solids.entry(index, start, towards) > 1
    return np.asarray(free.mean(axis=0, dtype=points.dtype))


FEWEST, MOST = 3, 10
# Minimum gap between two objects, and minimum distance of their centres along each of the camera's floor axes.
GAP, MARGIN = 0.25, 0.4
_HALF_FLOOR, _TRIES = 3.0, 50


def place(
    random: np.random.Generator, objects: Sequence[SceneObject], camera: Camera
) -> tuple[SceneObject, ...] | None:
    """The objects at free positions, one after another; None if 50 tries weren't enough for one of them."""
    axes = camera.floor_axes()
    placed: tuple[SceneObject, ...] = ()
    for each in objects:
        positions = random.uniform(-_HALF_FLOOR, _HALF_FLOOR, (_TRIES, 2))
        centres = np.array([(other.x, other.y) for other in placed]).reshape(-1, 2)
        apart = np.abs(((positions[:, None] - centres)[:, :, None] * axes).sum(axis=-1))
        positions = positions[(apart >= MARGIN).all(axis=(1, 2))]
        moved = (replace(each, x=x, y=y) for x, y in positions.tolist())
        fitting = next((new for new in moved if all(gap(new, old) >= GAP for old in placed)), None)
        if fitting is None:
            return None
        placed = (*placed, fitting)
    return placed


def gap(a: SceneObject, b: SceneObject) -> float:
    """Distance between the footprints of two objects, negative if they overlap."""
    if a.shape != "cube":
        return _distance(b, a.x, a.y) - a.radius
    if b.shape != "cube":
        return gap(b, a)
    # Two squares are closest at a corner of one of them, unless they cross: then their inscribed circles overlap.
    circles = hypot(a.x - b.x, a.y - b.y) - a.radius - b.radius
    corners = [
        _distance(other, cube.x + diagonal * cos(angle), cube.y + diagonal * sin(angle))
        for cube, other in ((a, b), (b, a))
        for diagonal in (cube.radius * 2**0.5,)
        for angle in (radians(cube.rotation + turn) for turn in (45, 135, 225, 315))
    ]
    return min(circles, *corners)


def _distance(footprint: SceneObject, x: float, y: float) -> float:
    """Distance of a point on the floor from an object's footprint, negative inside."""
    if footprint.shape != "cube":
        return hypot(x - footprint.x, y - footprint.y) - footprint.radius
    c, s = cos(radians(footprint.rotation)), sin(radians(footprint.rotation))
    along = abs(c * (x - footprint.x) + s * (y - footprint.y)) - footprint.radius
    across = abs(c * (y - footprint.y) - s * (x - footprint.x)) - footprint.radius
    return hypot(max(along, 0), max(across, 0)) + min(max(along, across), 0)


# Rays per block: their arrays fit the processor's cache, and the overhead of NumPy's calls is still small.
_BLOCK = 40_000


def pixel_rays(
    camera: Camera, width: int, height: int, rows: Ints, side: int = 1, dtype: DTypeLike = np.float64
) -> Rays:
    """Rays (side²·rows·width), side×side per pixel of some rows: the first rays of all pixels, then the second ones."""
    inside = (np.arange(side) + 0.5) / side
    down = (rows[:, None] + np.repeat(inside, side)[:, None, None]) / height
    across = (np.arange(width) + np.tile(inside, side)[:, None, None]) / width
    direction = camera.rays(*np.broadcast_arrays(across, down)).reshape(3, -1).astype(dtype)
    origin = np.broadcast_to(np.array(camera.position, dtype)[:, None], direction.shape)
    sample = np.repeat(np.arange(side * side), len(rows) * width)
    return Rays(origin, direction, np.full(len(sample), NOTHING), sample)


def row_blocks(width: int, height: int, side: int = 1) -> Iterator[Ints]:
    """The image's rows, some at a time."""
    rows = max(1, _BLOCK // (width * side * side))
    return (np.arange(top, min(top + rows, height)) for top in range(0, height, rows))


def visible_objects(objects: Sequence[SceneObject], camera: Camera, width: int, height: int) -> Ints:
    """Index (H,W) of the object at each pixel's centre, negative where there's none."""
    solids = Solids(objects)
    blocks = [solids.first_hit(pixel_rays(camera, width, height, rows))[1] for rows in row_blocks(width, height)]
    return np.concatenate(blocks).reshape(height, width)


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
        if placed is not None:
            visible = visible_objects(placed, camera, WIDTH, HEIGHT)
            if (np.bincount(visible[visible >= 0], minlength=len(placed)) >= FEWEST_PIXELS).all():
                return Scene(placed, camera, lamps)


def scene_objects(seed: int, index: int) -> list[SceneObject]:
    """The objects of `random_scene` before they are placed, which takes a hundred times longer."""
    return _draft(seed, index)[-1]


def _draft(seed: int, index: int) -> tuple[np.random.Generator, Camera, tuple[Lamp, ...], list[SceneObject]]:
    """Camera, lamps, and 3 to 10 objects that are all still at the origin."""
    random = np.random.default_rng([seed, index])

    def jittered(position: Point, amount: float) -> Point:
        x, y, z = (np.array(position) + random.uniform(-amount, amount, 3)).tolist()
        return x, y, z

    camera = Camera(jittered(CAMERA.position, _CAMERA_JITTER))
    lamps = tuple(replace(lamp, position=jittered(lamp.position, _LAMP_JITTER)) for lamp in LAMPS)
    number = int(random.integers(FEWEST, MOST + 1))
    attributes = [random.choice(list(names), number).tolist() for names in (SHAPES, RADIUS, MATERIALS, COLORS)]
    angles = random.uniform(0, 360, number).tolist()
    objects = [
        SceneObject(shape, size, material, color, 0.0, 0.0, angle)
        for shape, size, material, color, angle in zip(*attributes, angles, strict=True)
    ]
    return random, camera, lamps, objects
