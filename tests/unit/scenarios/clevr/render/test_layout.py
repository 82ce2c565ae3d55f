"""Objects keep their distance from each other."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from agop.scenarios.clevr.render.camera import Camera
from agop.scenarios.clevr.render.layout import GAP, MARGIN, gap
from agop.scenarios.clevr.render.objects import SHAPES, SceneObject
from tests.scenes import CUBE, SCENES


@pytest.mark.parametrize("scene", SCENES)
def test_objects_keep_their_distance(scene):
    for a, b in combinations(scene.objects, 2):
        assert gap(a, b) >= GAP
        assert (np.abs(scene.camera.floor_axes() @ (a.x - b.x, a.y - b.y)) >= MARGIN).all()
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


def test_overlapping_objects_have_a_negative_gap():
    for shape in SHAPES:
        other = replace(CUBE, shape=shape, rotation=70.0, x=CUBE.x + 0.1)
        assert gap(CUBE, other) < 0
        assert gap(other, CUBE) < 0


def test_axes_along_the_floor_point_right_and_away_from_the_camera():
    np.testing.assert_allclose(Camera((0.0, -8.0, 5.0)).floor_axes(), np.eye(2), atol=1e-12)
    for scene in SCENES:
        axes = scene.camera.floor_axes()
        np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
        assert axes[1] @ scene.camera.position[:2] < 0
