"""The ray caster of CLEVR-like scenes, by the laws its pictures and masks obey."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from agop.errors import InputError, UnknownNameError
from agop.scenarios.clevr.render.camera import CAMERA, Camera
from agop.scenarios.clevr.render.light import LIGHTS, seen_share
from agop.scenarios.clevr.render.placing import GAP, MARGIN, gap
from agop.scenarios.clevr.render.raycast import object_masks, render, srgb
from agop.scenarios.clevr.render.scene import Scene, Thing, random_scene, scene_objects
from agop.scenarios.clevr.render.seeing import first_seen, pixel_rays
from agop.scenarios.clevr.render.shading import radiance
from agop.scenarios.clevr.render.shapes import REACH, entry, normal
from agop.scenarios.clevr.render.solids import FLOOR, NOTHING, Rays, Solids
from agop.scenarios.clevr.render.things import COLORS, SHAPES
from agop.scenarios.clevr.render.world import World

SCENES = [random_scene(7, index) for index in range(8)]
BALL = Thing("sphere", "large", "rubber", "red", 0.5, -0.4, 0.0)
CUBE = Thing("cube", "large", "metal", "green", -1.0, 1.0, 25.0)


def pixels(scene, width=96, height=64, rays=1):
    """The picture as numbers that can be subtracted."""
    return render(scene, width, height, rays).astype(int)


def alone(thing):
    return Scene((thing,))


# Scenes


def test_a_scene_is_the_same_in_any_process_and_so_is_its_picture():
    code = (
        "import hashlib\n"
        "from agop.scenarios.clevr.render.scene import random_scene\n"
        "from agop.scenarios.clevr.render.raycast import render\n"
        "s = random_scene(7, 3); print(s); print(hashlib.sha256(render(s, 32, 24).tobytes()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    scene = random_scene(7, 3)
    assert done.stdout == f"{scene}\n{hashlib.sha256(render(scene, 32, 24).tobytes()).hexdigest()}\n"


def test_other_numbers_give_other_scenes():
    assert len({random_scene(seed, index) for seed in (0, 1) for index in (0, 1)}) == 4


@pytest.mark.parametrize("scene", SCENES)
def test_things_keep_their_distance(scene):
    for a, b in combinations(scene.things, 2):
        assert gap(a, b) >= GAP
        assert (np.abs(scene.camera.floor_axes() @ (a.x - b.x, a.y - b.y)) >= MARGIN).all()
    assert 3 <= len(scene.things) <= 10
    assert all(abs(thing.x) <= 3 and abs(thing.y) <= 3 for thing in scene.things)


@pytest.mark.parametrize("shapes", [("cube", "cube"), ("cube", "sphere"), ("cylinder", "cube"), ("sphere", "cylinder")])
def test_the_gap_is_that_between_all_points_of_two_rims(shapes):
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = (
            Thing(shape, "large", "rubber", "red", *random.uniform(-3, 3, 2), random.uniform(0, 360))
            for shape in shapes
        )
        apart = np.linalg.norm(rim(a)[:, None] - rim(b), axis=-1).min()
        if apart > 0.05 and np.hypot(a.x - b.x, a.y - b.y) > 2:
            assert gap(a, b) == pytest.approx(apart, abs=0.01) == gap(b, a)


def rim(thing):
    """Points (400,2) on the edge of the floor a thing covers."""
    around = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    circle = np.stack([np.cos(around), np.sin(around)])
    if thing.shape == "cube":
        circle = circle / np.abs(circle).max(axis=0)
    c, s = np.cos(np.radians(thing.rotation)), np.sin(np.radians(thing.rotation))
    return (np.array([[c, -s], [s, c]]) @ circle * thing.radius).T + np.array([thing.x, thing.y])


def test_things_that_stand_in_one_another_have_no_gap():
    for shape in SHAPES:
        other = replace(CUBE, shape=shape, rotation=70.0, x=CUBE.x + 0.1)
        assert gap(CUBE, other) < 0
        assert gap(other, CUBE) < 0


@pytest.mark.parametrize("scene", SCENES)
def test_every_thing_shows_on_200_pixels(scene):
    assert object_masks(scene, 480, 320).sum(axis=(1, 2)).min() >= 200


def test_things_are_placed_anew_until_all_can_be_seen(monkeypatch):
    scene = random_scene(7, 10)
    assert object_masks(scene, 480, 320).sum(axis=(1, 2)).min() >= 200
    monkeypatch.setattr("agop.scenarios.clevr.render.scene.FEWEST_PIXELS", 0)
    assert object_masks(random_scene(7, 10), 480, 320).sum(axis=(1, 2)).min() < 200


def test_both_materials_occur_and_all_else_does():
    things = [thing for scene in SCENES for thing in scene.things]
    assert 0.25 < np.mean([thing.material == "metal" for thing in things]) < 0.75
    assert {thing.color for thing in things} == set(COLORS)
    assert {thing.shape for thing in things} == set(SHAPES)
    assert {thing.size for thing in things} == {"large", "small"}


def test_cameras_and_lamps_are_jittered():
    cameras = np.array([scene.camera.position for scene in SCENES]) - CAMERA.position
    lamps = np.array([[light.position for light in scene.lights] for scene in SCENES])
    lamps -= [light.position for light in LIGHTS]
    for moved, most in ((cameras, 0.5), (lamps, 1.0)):
        assert 0.5 * most < np.abs(moved).max() <= most
        assert len(np.unique(moved)) == moved.size


def test_axes_along_the_floor_point_right_and_away_from_the_camera():
    np.testing.assert_allclose(Camera((0.0, -8.0, 5.0)).floor_axes(), np.eye(2))
    for scene in SCENES:
        axes = scene.camera.floor_axes()
        np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
        assert axes[1] @ scene.camera.position[:2] < 0


def test_scene_objects_are_those_of_the_scene_before_they_are_placed():
    for index, scene in enumerate(SCENES):
        assert [replace(thing, x=0.0, y=0.0) for thing in scene.things] == scene_objects(7, index)


def test_names_that_nothing_carries():
    with pytest.raises(UnknownNameError, match=r"color.*pink.*purple"):
        replace(BALL, color="pink")


# Masks


def project(camera, point):
    """Where a point is in the frame (across and down, from 0 to 1), and its depth along the view."""
    right, up, forward = camera.axes()
    seen = np.array(point) - camera.position
    depth, half = seen @ forward, np.tan(np.radians(49.1 / 2))
    return 0.5 + seen @ right / (2 * depth * half), 0.5 - 1.5 * (seen @ up) / (2 * depth * half), depth


@pytest.mark.parametrize("scene", SCENES)
def test_the_centre_of_a_lone_object_is_in_its_mask(scene):
    seen = 0
    for thing in scene.things:
        across, down, depth = project(scene.camera, thing.centre)
        mask = object_masks(Scene((thing,), scene.camera), 480, 320)[0]
        if 0 <= across < 1 and 0 <= down < 1:
            assert mask[int(down * 320), int(across * 480)]
            seen += 1
        assert depth < np.linalg.norm(np.array(thing.centre) - scene.camera.position)
    assert seen


@pytest.mark.parametrize(("width", "height"), [(96, 64), (64, 64), (31, 47)])
def test_the_mask_of_a_lone_ball_is_its_quadratic(width, height):
    """Each pixel's ray worked out by hand: sides, depth and all, then asked how close it comes to the ball."""
    camera, ball = np.array(CAMERA.position), np.array(BALL.centre)
    forward = -camera / np.linalg.norm(camera)
    right = np.cross(forward, [0, 0, 1])
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    half = np.tan(np.radians(49.1 / 2))
    expected = np.zeros((height, width), bool)
    for row in range(height):
        for column in range(width):
            x, y = 2 * (column + 0.5) / width - 1, 1 - 2 * (row + 0.5) / height
            ray = forward + half * x * right + half / 1.5 * y * up
            along = (ball - camera) @ ray
            expected[row, column] = along**2 - ray @ ray * ((ball - camera) @ (ball - camera) - BALL.radius**2) > 0
    mask = object_masks(alone(BALL), width, height)
    assert mask.shape == (1, height, width)
    assert expected.any()
    np.testing.assert_array_equal(mask[0], expected)


def test_masks_are_disjoint():
    for scene in SCENES:
        masks = object_masks(scene, 120, 80)
        assert masks.shape == (len(scene.things), 80, 120)
        assert masks.sum(axis=0).max() == 1


def test_what_stands_behind_loses_exactly_the_covered_pixels():
    towards = -np.array(CAMERA.position[:2]) / np.hypot(*CAMERA.position[:2])
    far = replace(CUBE, x=BALL.x + 1.9 * towards[0], y=BALL.y + 1.9 * towards[1])
    (front,), (whole,) = object_masks(alone(BALL), 240, 160), object_masks(alone(far), 240, 160)
    for order in ((BALL, far), (far, BALL)):
        masks = dict(zip(order, object_masks(Scene(order), 240, 160), strict=True))
        np.testing.assert_array_equal(masks[BALL], front)
        np.testing.assert_array_equal(masks[far], whole & ~front)
    assert (whole & front).any()
    assert (whole & ~front).any()


def test_a_cube_s_mask_is_that_of_its_corners_hull():
    """Every pixel within is on the inner side of all edges of the convex hull of the eight projected corners."""
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


def test_a_squeezed_mask_shows_the_same_frame():
    scene = SCENES[0]
    wide, square = object_masks(scene, 480, 320), object_masks(scene, 160, 320)
    # Every third column's centre is the narrow picture's.
    np.testing.assert_array_equal(wide[:, :, 1::3], square)


# Shapes


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_enter_where_the_shape_s_inequality_begins_to_hold(shape):
    random = np.random.default_rng(0)
    origin = random.normal(size=(3, 300))
    origin *= 3 / np.linalg.norm(origin, axis=0)
    direction = random.normal(size=(3, 300)) * 0.6 - origin
    steps = np.linspace(0, 2, 2001)
    inside = level(shape, origin[..., None] + direction[..., None] * steps) < 1
    found = entry(shape, origin, direction)
    hit = inside.any(axis=1)
    assert hit.any()
    # A ray that only scratches the shape may slip between two steps.
    assert (np.isfinite(found) == hit).mean() > 0.99
    both = hit & np.isfinite(found)
    np.testing.assert_allclose(found[both], steps[inside.argmax(axis=1)][both], atol=0.0011)


def level(shape, points):
    """Below 1 inside the shape: (…) for points (3,…)."""
    if shape == "sphere":
        return np.linalg.norm(points, axis=0)
    if shape == "cube":
        return np.abs(points).max(axis=0)
    return np.maximum(np.hypot(points[0], points[1]), np.abs(points[2]))


@pytest.mark.parametrize("shape", SHAPES)
def test_normals_are_the_level_s_slope_but_for_the_bevel(shape):
    random = np.random.default_rng(1)
    points = random.normal(size=(3, 500))
    points /= level(shape, points)
    assert np.linalg.norm(points, axis=0).max() <= REACH[shape] + 1e-9
    normals = normal(shape, points)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=0), 1)
    slopes = np.stack(
        [level(shape, points + step) - level(shape, points - step) for step in np.eye(3)[..., None] * 1e-6]
    )
    slopes /= np.linalg.norm(slopes, axis=0)
    cosines = (normals * slopes).sum(axis=0)
    # At the edge of two faces a bevel's normal leans by 45°, in the corner of three by 55°.
    assert cosines.min() > 0.57
    assert np.median(cosines) == pytest.approx(1)
    assert (cosines.min() < 0.9) == (shape != "sphere")


def test_a_lamp_is_hidden_from_exactly_the_points_behind_a_ball():
    """The quick share against each point on the lamp, asked one by one."""
    solids, light = Solids((BALL,)), LIGHTS[0]
    points = light.points(4)
    places = np.stack([*np.random.default_rng(0).uniform(-3, 3, (2, 500)), np.zeros(500)])
    turn = np.arange(500) % 4
    share = seen_share(solids, light, points, places, np.full(500, FLOOR), turn)
    slow = []
    for number in range(500):
        rays = points[:, turn[number]] - places[:, number, None]
        seen = np.array(BALL.centre) - places[:, number]
        close = np.linalg.norm(np.cross(rays.T, seen), axis=1) / np.linalg.norm(rays, axis=0) < BALL.radius
        slow.append(1 - (close & (rays.T @ seen > 0)).mean())
    np.testing.assert_allclose(share, slow)
    assert ((share > 0) & (share < 1)).any()
    assert (share == 0).any()


def test_a_lamp_s_points_lie_on_its_disc_and_every_ray_has_its_own():
    light = LIGHTS[1]
    points = light.points(9)
    away = points.reshape(3, -1).T - light.position
    assert points.shape == (3, 9, 4)
    np.testing.assert_allclose(away @ light.position, 0, atol=1e-9)
    assert np.linalg.norm(away, axis=1).max() <= light.radius
    assert len(np.unique(away.round(6), axis=0)) == 36
    np.testing.assert_allclose(away.mean(axis=0), 0, atol=0.05)


def test_rays_meet_neither_their_own_thing_nor_what_lies_behind_them():
    solids = Solids((BALL, CUBE))
    up, down = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [0.0], [-1.0]])
    above = np.array(BALL.centre)[:, None] + 3 * up
    for direction, own, met in ((down, NOTHING, 0), (up, NOTHING, NOTHING), (down, 0, FLOOR)):
        far, what = solids.first(Rays(above, direction, np.array([own]), np.zeros(1, int)))
        assert what[0] == met
        assert far[0] == pytest.approx({0: 3 - BALL.radius, NOTHING: np.inf, FLOOR: 3 + BALL.radius}[met])


# Pictures


def test_a_picture_has_its_shape_and_no_hole():
    for scene in SCENES[:4]:
        picture = render(scene, 64, 64)
        assert picture.shape == (64, 64, 3)
        assert picture.dtype == np.uint8
        assert picture.max(axis=-1).min() > 15


def test_a_scene_without_things_is_a_smooth_floor():
    picture = pixels(Scene(()))
    assert np.ptp(picture, axis=-1).max() < 15
    # The slope is even: it bends by no more than rounding.
    assert max(np.abs(np.diff(picture, n=2, axis=axis)).max() for axis in (0, 1)) <= 2
    assert picture[-1].mean() > picture[0].mean() + 20
    assert object_masks(Scene(()), 6, 4).shape == (0, 4, 6)


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("material", ["rubber", "metal"])
def test_a_ball_has_its_color(color, material):
    ball = replace(BALL, color=color, material=material)
    lit = pixels(alone(ball))[object_masks(alone(ball), 96, 64)[0]].mean(axis=0)
    hues = {name: np.array(rgb) / np.linalg.norm(rgb) for name, rgb in COLORS.items()}
    likeness = {name: float(hue @ lit) for name, hue in hues.items()}
    # Brown is dark orange: its hue is not far from yellow's or red's, but the closest is its own.
    assert max(likeness, key=likeness.__getitem__) == color


def test_red_rubber_is_red_wherever_it_is_lit():
    inside = pixels(alone(BALL))[object_masks(alone(BALL), 96, 64)[0]]
    assert (inside[:, 0] > 1.5 * inside[:, 1:].max(axis=1)).mean() > 0.9


def test_things_throw_shadows_on_the_floor():
    bare, with_ball = pixels(Scene(())), pixels(alone(BALL))
    floor = ~object_masks(alone(BALL), 96, 64)[0]
    darker = (bare - with_ball).sum(axis=-1)[floor]
    assert darker.max() > 60
    # Red light from the ball may brighten the floor by a trace.
    assert darker.min() > -12
    columns = np.nonzero(((bare - with_ball).sum(axis=-1) > 30) & floor)[1]
    # The key lamp stands at the camera's right: the shadow falls to the left of the ball.
    assert columns.mean() < project(CAMERA, BALL.centre)[0] * 96


def test_the_wider_the_lamp_the_softer_the_shadow():
    """The steepest step along the floor, over the picture of a ball's shadow from one lamp."""

    def steepest(radius):
        lights = (replace(LIGHTS[0], radius=radius),)
        bare, shaded = (pixels(Scene(things, lights=lights), 240, 160, 2) for things in ((), (BALL,)))
        shadow = (shaded / bare).mean(axis=-1)
        shadow[nearby(object_masks(alone(BALL), 240, 160)[0], 8)] = np.nan
        return np.nanmax(np.abs(np.diff(shadow, axis=1)))

    assert steepest(0.05) > 2 * steepest(0.7) > 2.5 * steepest(1.5)


def nearby(mask, reach):
    """The mask, wider by so many pixels on all sides."""
    wide = np.pad(mask, reach)
    return np.lib.stride_tricks.sliding_window_view(wide, (2 * reach + 1,) * 2).any(axis=(2, 3))


def test_a_color_reaches_other_pixels_only_by_mirrors_and_by_a_faint_glow():
    red, blue = (Scene((replace(BALL, color=color), replace(CUBE, material="rubber"))) for color in ("red", "blue"))
    changed = np.abs(pixels(red) - pixels(blue)).max(axis=-1)
    ball = object_masks(red, 96, 64)[0]
    assert changed[ball].min() > 20
    assert 0 < changed[~ball].max() < 20
    # Far from the ball it is no more than rounding.
    assert np.median(changed[~ball]) == 0
    assert changed[:8].max() <= 1


def test_metal_mirrors_its_neighbours_and_rubber_does_not():
    def change(material):
        mirror = Thing("cube", "large", material, "gray", 0.0, 1.5, 41.0)
        scenes = [Scene((mirror, replace(BALL, color=color, x=0.9))) for color in ("yellow", "blue")]
        first, second = map(pixels, scenes)
        return np.abs(first - second).max(axis=-1)[object_masks(scenes[0], 96, 64)[0]]

    assert (change("metal") > 25).sum() > 30
    assert (change("rubber") > 25).sum() == 0


def test_mirrors_mirror_mirrors_three_times():
    things = tuple(replace(BALL, material="metal", x=x, y=y) for x, y in ((-0.9, 0.0), (0.9, 0.0), (0.0, 1.6)))
    world, rays = World.of(things, LIGHTS, 1), pixel_rays(CAMERA, 192, 128, np.arange(128), dtype=np.float32)
    brought = [radiance(world, rays, bounces) for bounces in range(4)]
    changed = [(np.abs(more - less).max(axis=0) > 0.002).sum() for less, more in pairwise(brought)]
    # Each further mirror changes fewer pixels, and the third still some.
    assert changed[0] > changed[1] > changed[2] > 0
    np.testing.assert_array_equal(radiance(world, rays), brought[3])


def test_a_metal_mirror_is_a_little_blurred(monkeypatch):
    scene = Scene((Thing("cube", "large", "metal", "gray", 0.0, 1.5, 41.0), replace(BALL, color="yellow", x=0.9)))
    # Within one face of the cube, about the rim of the ball's mirror image.
    patch = np.s_[52:58, 142:158]
    assert object_masks(scene, 240, 160)[0][patch].all()

    def steepest():
        return np.abs(np.diff(pixels(scene, 240, 160, 3)[patch], axis=1)).max()

    blurred = steepest()
    monkeypatch.setattr("agop.scenarios.clevr.render.world._STRAY", 0.0)
    assert steepest() > 1.3 * blurred


def test_rays_stray_to_no_side():
    for turns in (1, 4, 9):
        stray = World.of((), LIGHTS, turns).stray
        np.testing.assert_allclose(stray.mean(axis=1), 0, atol=1e-6)
        assert np.abs(stray).max() > 0.03 or turns == 1


def test_the_floor_is_darker_where_a_thing_hides_the_sky():
    bare, with_ball = (pixels(Scene(things, lights=())) for things in ((), (BALL,)))
    ball = object_masks(alone(BALL), 96, 64)[0]
    darker = (bare - with_ball).mean(axis=-1)
    assert np.ptp(bare) < 5
    assert darker[nearby(ball, 1) & ~ball].mean() > 8 * darker[~nearby(ball, 8)].mean() > 0
    assert darker[nearby(ball, 1) & ~ball].max() > 20


def test_light_becomes_srgb_and_glare_runs_into_white():
    np.testing.assert_array_equal(srgb(np.array([0.0, 0.002, 0.216, 0.5, 1.0])), [0, 7, 128, 188, 255])
    glaring = tuple(replace(light, color=(3000.0,) * 3) for light in LIGHTS)
    # The lower half, in front: what lies behind the lamps gets little of their light.
    assert pixels(Scene((), lights=glaring))[32:].min() > 250


def test_metal_has_sharper_contrasts_than_rubber():
    def contrast(material):
        scene = alone(replace(BALL, material=material))
        inside = pixels(scene, 96, 64, 2)[object_masks(scene, 96, 64)[0]]
        return np.ptp(inside.mean(axis=-1))

    assert contrast("metal") > 1.5 * contrast("rubber")


def test_smooth_surfaces_show_no_speckles():
    """On a rubber ball the picture is as its neighbours make it: no acne, no noise."""
    picture = pixels(alone(BALL), 240, 160).mean(axis=-1)
    rows, columns = np.nonzero(object_masks(alone(BALL), 240, 160)[0])
    r, c = int(rows.mean()), int(columns.mean())
    patch = picture[r - 10 : r + 11, c - 10 : c + 11]
    between = (patch[:-2, 1:-1] + patch[2:, 1:-1] + patch[1:-1, :-2] + patch[1:-1, 2:]) / 4
    # The tip of a highlight bends by a little more than 2.
    assert np.abs(patch[1:-1, 1:-1] - between).max() < 3


def test_a_small_picture_is_the_large_one_averaged():
    scene = SCENES[2]
    small, large = pixels(scene, 60, 40, 3), pixels(scene, 240, 160, 2)
    averaged = large.reshape(40, 4, 60, 4, 3).mean(axis=(1, 3))
    squeezed, wide = pixels(scene, 40, 40, 3), pixels(scene, 240, 160, 2).reshape(40, 4, 40, 6, 3).mean(axis=(1, 3))
    assert np.abs(small - averaged).mean() < 1
    assert np.abs(squeezed - wide).mean() < 1
    assert np.abs(small - averaged[::-1]).mean() > 10


def test_a_picture_does_not_depend_on_how_many_rows_go_at_once(monkeypatch):
    whole = render(SCENES[1], 24, 16, 2), first_seen(SCENES[1].things, SCENES[1].camera, 24, 16)
    monkeypatch.setattr("agop.scenarios.clevr.render.seeing._AT_ONCE", 200)
    parts = render(SCENES[1], 24, 16, 2), first_seen(SCENES[1].things, SCENES[1].camera, 24, 16)
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


def test_sizes_below_one():
    with pytest.raises(InputError, match="rays is 0"):
        render(SCENES[0], 8, 8, 0)
    with pytest.raises(InputError, match="width is 0"):
        object_masks(SCENES[0], 0, 8)
