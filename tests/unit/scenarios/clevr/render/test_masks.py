"""Object masks of rendered scenes, against independent geometry."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from agop.scenarios.clevr.render.camera import CAMERA
from agop.scenarios.clevr.render.images import object_masks
from agop.scenarios.clevr.render.scene import Scene
from tests.scenes import BALL, CUBE, SCENES, alone, project


@pytest.mark.parametrize("scene", SCENES)
def test_centre_of_a_lone_object_is_in_its_mask(scene):
    inside = 0
    for each in scene.objects:
        across, down, depth = project(scene.camera, each.centre)
        mask = object_masks(Scene((each,), scene.camera), 480, 320)[0]
        if 0 <= across < 1 and 0 <= down < 1:
            assert mask[int(down * 320), int(across * 480)]
            inside += 1
        assert depth < np.linalg.norm(np.array(each.centre) - scene.camera.position)
    assert inside


@pytest.mark.parametrize(("width", "height"), [(96, 64), (64, 64), (31, 47)])
def test_mask_of_a_lone_ball_solves_the_quadratic(width, height):
    """Each pixel's ray computed by hand, then tested for whether it intersects the ball."""
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
        assert masks.shape == (len(scene.objects), 80, 120)
        assert masks.sum(axis=0).max() == 1


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


def test_scene_without_objects_has_no_masks():
    assert object_masks(Scene(()), 6, 4).shape == (0, 4, 6)
