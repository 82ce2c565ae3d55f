"""Drawn CLEVR scenes: objects, rays, masks and images against slow or independent computations."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from scipy.ndimage import binary_dilation, convolve

from agop.bench.scenarios import clevr_scene
from agop.bench.scenarios.clevr_render import World, object_masks, radiance, render, srgb
from agop.bench.scenarios.clevr_scene import CAMERA, COLORS, FLOOR, LAMPS, NOTHING, SHAPES, Scene, SceneObject, gap

SCENES = [clevr_scene.random_scene(7, index) for index in range(8)]
BALL = SceneObject("sphere", "large", "rubber", "red", 0.5, -0.4, 0.0)
CUBE = SceneObject("cube", "large", "metal", "green", -1.0, 1.0, 25.0)


def pixels(scene, width=96, height=64, rays=1):
    """The rendered image as signed integers, which can be subtracted."""
    return render(scene, width, height, rays).astype(int)


def alone(scene_object):
    return Scene((scene_object,))


def project(camera, point):
    """A point's position in the frame (across and down, from 0 to 1), and its depth along the view."""
    right, up, forward = camera.axes()
    seen = np.array(point) - camera.position
    depth, half = seen @ forward, np.tan(np.radians(49.1 / 2))
    return 0.5 + seen @ right / (2 * depth * half), 0.5 - 1.5 * (seen @ up) / (2 * depth * half), depth


def test_seed_and_index_decide_the_scene_and_image_in_every_process():
    code = (
        "import hashlib\n"
        "from agop.bench.scenarios.clevr_scene import random_scene\n"
        "from agop.bench.scenarios.clevr_render import render\n"
        "s = random_scene(7, 3); print(s); print(hashlib.sha256(render(s, 32, 24).tobytes()).hexdigest())"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    scene = clevr_scene.random_scene(7, 3)
    assert len({clevr_scene.random_scene(seed, index) for seed in (7, 8) for index in (3, 4)}) == 4
    assert process.stdout == f"{scene}\n{hashlib.sha256(render(scene, 32, 24).tobytes()).hexdigest()}\n"


def test_scene_objects_equal_those_of_the_scene_except_for_their_position():
    for index, scene in enumerate(SCENES):
        assert [replace(each, x=0.0, y=0.0) for each in scene.objects] == clevr_scene.scene_objects(7, index)


def test_objects_are_placed_again_until_each_shows_on_200_pixels(monkeypatch):
    for scene in (*SCENES, clevr_scene.random_scene(7, 10)):
        assert object_masks(scene, 480, 320).sum(axis=(1, 2)).min() >= 200
    monkeypatch.setattr("agop.bench.scenarios.clevr_scene.FEWEST_PIXELS", 0)
    assert object_masks(clevr_scene.random_scene(7, 10), 480, 320).sum(axis=(1, 2)).min() < 200


@pytest.mark.parametrize("scene", SCENES)
def test_objects_keep_their_distance(scene):
    for a, b in combinations(scene.objects, 2):
        assert gap(a, b) >= clevr_scene.GAP
        assert (np.abs(scene.camera.floor_axes() @ (a.x - b.x, a.y - b.y)) >= clevr_scene.MARGIN).all()
    assert 3 <= len(scene.objects) <= 10
    assert all(abs(each.x) <= 3 and abs(each.y) <= 3 for each in scene.objects)


@pytest.mark.parametrize("shapes", [("cube", "cube"), ("cube", "sphere"), ("cylinder", "cube"), ("sphere", "cylinder")])
def test_gap_is_the_smallest_distance_of_points_on_two_outlines(shapes):
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = (
            SceneObject(shape, "large", "rubber", "red", *random.uniform(-3, 3, 2), random.uniform(0, 360))
            for shape in shapes
        )
        distance = np.linalg.norm(outline(a)[:, None] - outline(b), axis=-1).min()
        if distance > 0.05 and np.hypot(a.x - b.x, a.y - b.y) > 2:
            assert gap(a, b) == pytest.approx(distance, abs=0.01) == gap(b, a)


def outline(scene_object):
    """Points (400,2) on the edge of an object's footprint."""
    around = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    circle = np.stack([np.cos(around), np.sin(around)])
    if scene_object.shape == "cube":
        circle = circle / np.abs(circle).max(axis=0)
    c, s = np.cos(np.radians(scene_object.rotation)), np.sin(np.radians(scene_object.rotation))
    rotated = np.array([[c, -s], [s, c]]) @ circle
    return (rotated * scene_object.radius).T + np.array([scene_object.x, scene_object.y])


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_enter_where_the_shapes_inequality_starts_to_hold(shape):
    random = np.random.default_rng(0)
    origin = random.normal(size=(3, 300))
    origin *= 3 / np.linalg.norm(origin, axis=0)
    direction = random.normal(size=(3, 300)) * 0.6 - origin
    steps = np.linspace(0, 2, 2001)
    inside = level(shape, origin[..., None] + direction[..., None] * steps) < 1
    entries = clevr_scene.entry(shape, origin, direction)
    hit = inside.any(axis=1)
    assert hit.any()
    # A ray that only grazes the shape may pass between two steps.
    assert (np.isfinite(entries) == hit).mean() > 0.99
    both = hit & np.isfinite(entries)
    np.testing.assert_allclose(entries[both], steps[inside.argmax(axis=1)][both], atol=0.0011)


def level(shape, points):
    """Below 1 inside the shape: (…) for points (3,…)."""
    if shape == "sphere":
        return np.linalg.norm(points, axis=0)
    if shape == "cube":
        return np.abs(points).max(axis=0)
    return np.maximum(np.hypot(points[0], points[1]), np.abs(points[2]))


@pytest.mark.parametrize("shape", SHAPES)
def test_normals_are_the_gradient_of_the_level_except_on_the_bevel(shape):
    random = np.random.default_rng(1)
    points = random.normal(size=(3, 500))
    points /= level(shape, points)
    assert np.linalg.norm(points, axis=0).max() <= clevr_scene.BOUND[shape] + 1e-9
    normals = clevr_scene.normal(shape, points)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=0), 1)
    gradients = np.stack(
        [level(shape, points + step) - level(shape, points - step) for step in np.eye(3)[..., None] * 1e-6]
    )
    gradients /= np.linalg.norm(gradients, axis=0)
    cosines = (normals * gradients).sum(axis=0)
    # A bevel's normal is tilted by 45° at the edge of two faces, by 55° at the corner of three.
    assert cosines.min() > 0.57
    assert np.median(cosines) == pytest.approx(1)
    assert (cosines.min() < 0.9) == (shape != "sphere")


def test_rays_hit_neither_their_source_nor_objects_behind_them():
    solids = clevr_scene.Solids((BALL, CUBE))
    up, down = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [0.0], [-1.0]])
    above = np.array(BALL.centre)[:, None] + 3 * up
    for direction, source, expected in ((down, NOTHING, 0), (up, NOTHING, NOTHING), (down, 0, FLOOR)):
        distance, target = solids.first_hit(clevr_scene.Rays(above, direction, np.array([source]), np.zeros(1, int)))
        assert target[0] == expected
        distances = {0: 3 - BALL.radius, NOTHING: np.inf, FLOOR: 3 + BALL.radius}
        assert distance[0] == pytest.approx(distances[expected])


def test_visible_share_of_a_lamp_equals_testing_each_of_its_points():
    solids, lamp = clevr_scene.Solids((BALL,)), LAMPS[0]
    lamp_points = lamp.points(4)
    points = np.stack([*np.random.default_rng(0).uniform(-3, 3, (2, 500)), np.zeros(500)])
    sample = np.arange(500) % 4
    share = clevr_scene.visible_share(solids, lamp, lamp_points, points, np.full(500, FLOOR), sample)
    rays = lamp_points[:, sample] - points[:, :, None]
    centre = np.array(BALL.centre)[:, None, None] - points[:, :, None]
    apart = np.linalg.norm(np.cross(rays, centre, axis=0), axis=0) / np.linalg.norm(rays, axis=0)
    hidden = (apart < BALL.radius) & ((rays * centre).sum(axis=0) > 0)
    np.testing.assert_allclose(share, 1 - hidden.mean(axis=1))
    assert ((share > 0) & (share < 1)).any()
    assert (share == 0).any()


@pytest.mark.parametrize(("width", "height"), [(96, 64), (64, 64), (31, 47)])
def test_mask_of_a_lone_ball_solves_the_quadratic(width, height):
    """Each pixel's ray computed by hand, then tested for whether it intersects the ball."""
    camera, ball = np.array(CAMERA.position), np.array(BALL.centre)
    forward = -camera / np.linalg.norm(camera)
    right = np.cross(forward, [0, 0, 1])
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    half = np.tan(np.radians(49.1 / 2))
    rows, columns = np.mgrid[:height, :width][..., None] + 0.5
    rays = forward + half * (2 * columns / width - 1) * right + half / 1.5 * (1 - 2 * rows / height) * up
    along, distance = rays @ (ball - camera), np.linalg.norm(ball - camera)
    expected = along**2 - (rays * rays).sum(axis=-1) * (distance**2 - BALL.radius**2) > 0
    mask = object_masks(alone(BALL), width, height)
    assert mask.shape == (1, height, width)
    assert expected.any()
    np.testing.assert_array_equal(mask[0], expected)


def test_occluded_object_loses_exactly_the_covered_pixels():
    away = -np.array(CAMERA.position[:2]) / np.hypot(*CAMERA.position[:2])
    behind = replace(CUBE, x=BALL.x + 1.9 * away[0], y=BALL.y + 1.9 * away[1])
    (front,), (whole,) = object_masks(alone(BALL), 240, 160), object_masks(alone(behind), 240, 160)
    for order in ((BALL, behind), (behind, BALL)):
        masks = dict(zip(order, object_masks(Scene(order), 240, 160), strict=True))
        np.testing.assert_array_equal(masks[BALL], front)
        np.testing.assert_array_equal(masks[behind], whole & ~front)
    assert (whole & front).any()
    assert (whole & ~front).any()


def test_mask_of_a_cube_is_the_convex_hull_of_its_projected_corners():
    """A pixel is inside if it's on the inner side of every edge of the hull."""
    offsets = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * CUBE.radius
    c, s = np.cos(np.radians(CUBE.rotation)), np.sin(np.radians(CUBE.rotation))
    corners = np.array(CUBE.centre) + offsets @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    flat = np.array([project(CAMERA, corner)[:2] for corner in corners]) * [240, 160]
    rows, columns = np.mgrid[:160, :240] + 0.5
    inside = np.ones((160, 240), bool)
    for a, b in permutations(flat, 2):
        (across, down), (x, y) = b - a, a
        if (across * (flat[:, 1] - y) - down * (flat[:, 0] - x) > -1e-9).all():
            inside &= across * (rows - y) - down * (columns - x) > 0
    assert inside.any()
    np.testing.assert_array_equal(object_masks(alone(CUBE), 240, 160)[0], inside)


def test_scene_without_objects_is_a_smooth_floor():
    image = pixels(Scene(()))
    assert np.ptp(image, axis=-1).max() < 15
    # Second differences are no larger than rounding.
    assert max(np.abs(np.diff(image, n=2, axis=axis)).max() for axis in (0, 1)) <= 2
    assert image[-1].mean() > image[0].mean() + 20


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("material", ["rubber", "metal"])
def test_ball_has_its_colour(color, material):
    ball = replace(BALL, color=color, material=material)
    mean = pixels(alone(ball))[object_masks(alone(ball), 96, 64)[0]].mean(axis=0)
    hues = {name: np.array(rgb) / np.linalg.norm(rgb) for name, rgb in COLORS.items()}
    similarity = {name: float(hue @ mean) for name, hue in hues.items()}
    # Brown is dark orange: close to yellow and red, but its own hue is closest.
    assert max(similarity, key=similarity.__getitem__) == color


def test_objects_cast_shadows_on_the_floor():
    bare, with_ball = pixels(Scene(())), pixels(alone(BALL))
    floor = ~object_masks(alone(BALL), 96, 64)[0]
    darker = (bare - with_ball).sum(axis=-1)[floor]
    assert darker.max() > 60
    # Red light from the ball may brighten the floor a little.
    assert darker.min() > -12
    columns = np.nonzero(((bare - with_ball).sum(axis=-1) > 30) & floor)[1]
    # The key lamp is to the right of the camera: the shadow falls to the left of the ball.
    assert columns.mean() < project(CAMERA, BALL.centre)[0] * 96


def dilated(mask, reach):
    """The mask, wider by that many pixels on all sides."""
    return binary_dilation(mask, np.ones((2 * reach + 1,) * 2))


def test_a_colour_reaches_other_pixels_only_as_a_faint_glow():
    red, blue = (Scene((replace(BALL, color=color), replace(CUBE, material="rubber"))) for color in ("red", "blue"))
    change = np.abs(pixels(red) - pixels(blue)).max(axis=-1)
    ball = object_masks(red, 96, 64)[0]
    assert change[ball].min() > 20
    assert 0 < change[~ball].max() < 20
    # Far from the ball it's no more than rounding.
    assert np.median(change[~ball]) == 0
    assert change[:8].max() <= 1


def test_metal_mirrors_its_neighbours_and_rubber_does_not():
    def change(material):
        mirror = SceneObject("cube", "large", material, "gray", 0.0, 1.5, 41.0)
        scenes = [Scene((mirror, replace(BALL, color=color, x=0.9))) for color in ("yellow", "blue")]
        first, second = map(pixels, scenes)
        return np.abs(first - second).max(axis=-1)[object_masks(scenes[0], 96, 64)[0]]

    assert (change("metal") > 25).sum() > 30
    assert (change("rubber") > 25).sum() == 0


def test_three_bounces_between_mirrors_are_visible():
    objects = tuple(replace(BALL, material="metal", x=x, y=y) for x, y in ((-0.9, 0.0), (0.9, 0.0), (0.0, 1.6)))
    world, rays = World(objects, LAMPS, 1), clevr_scene.pixel_rays(CAMERA, 192, 128, np.arange(128), dtype=np.float32)
    light = [radiance(world, rays, bounces) for bounces in range(4)]
    changed = [(np.abs(more - less).max(axis=0) > 0.002).sum() for less, more in pairwise(light)]
    # Each further bounce changes fewer pixels, and the third still some.
    assert changed[0] > changed[1] > changed[2] > 0
    np.testing.assert_array_equal(radiance(world, rays), light[3])


def test_floor_is_darker_where_an_object_hides_the_sky():
    bare, with_ball = (pixels(Scene(objects, lamps=())) for objects in ((), (BALL,)))
    ball = object_masks(alone(BALL), 96, 64)[0]
    darker = (bare - with_ball).mean(axis=-1)
    assert np.ptp(bare) < 5
    assert darker[dilated(ball, 1) & ~ball].mean() > 8 * darker[~dilated(ball, 8)].mean() > 0
    assert darker[dilated(ball, 1) & ~ball].max() > 20


def test_linear_light_becomes_srgb_and_glare_becomes_white():
    np.testing.assert_array_equal(srgb(np.array([0.0, 0.002, 0.216, 0.5, 1.0])), [0, 7, 128, 188, 255])
    glaring = tuple(replace(lamp, color=(3000.0,) * 3) for lamp in LAMPS)
    # The lower half, in front: the floor behind the lamps gets little of their light.
    assert pixels(Scene((), lamps=glaring))[32:].min() > 250


def test_smooth_surfaces_have_no_speckles():
    """On a rubber ball every pixel is close to the mean of its neighbours: no shadow acne, no noise."""
    image = pixels(alone(BALL), 240, 160).mean(axis=-1)
    rows, columns = np.nonzero(object_masks(alone(BALL), 240, 160)[0])
    r, c = int(rows.mean()), int(columns.mean())
    neighbours = convolve(image, np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4)
    # At the peak of a highlight the difference is a little above 2.
    assert np.abs(image - neighbours)[r - 9 : r + 10, c - 9 : c + 10].max() < 3


def test_small_image_is_the_average_of_a_large_one():
    scene = SCENES[2]
    large = pixels(scene, 240, 160, 2)
    small, averaged = pixels(scene, 60, 40, 3), large.reshape(40, 4, 60, 4, 3).mean(axis=(1, 3))
    square, squeezed = pixels(scene, 40, 40, 3), large.reshape(40, 4, 40, 6, 3).mean(axis=(1, 3))
    assert np.abs(small - averaged).mean() < 1
    assert np.abs(square - squeezed).mean() < 1
    assert np.abs(small - averaged[::-1]).mean() > 10
