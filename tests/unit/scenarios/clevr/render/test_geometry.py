"""Ray hits and surface normals, against slow or independent computations; also shadow rays to the lamps."""

import numpy as np
import pytest

from agop.scenarios.clevr.render.geometry import BOUND, FLOOR, NOTHING, Rays, Solids, entry, normal
from agop.scenarios.clevr.render.lamps import LAMPS, visible_share
from agop.scenarios.clevr.render.objects import SHAPES
from tests.scenes import BALL, CUBE


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_enter_where_the_shapes_inequality_starts_to_hold(shape):
    random = np.random.default_rng(0)
    origin = random.normal(size=(3, 300))
    origin *= 3 / np.linalg.norm(origin, axis=0)
    direction = random.normal(size=(3, 300)) * 0.6 - origin
    steps = np.linspace(0, 2, 2001)
    inside = level(shape, origin[..., None] + direction[..., None] * steps) < 1
    entries = entry(shape, origin, direction)
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
    assert np.linalg.norm(points, axis=0).max() <= BOUND[shape] + 1e-9
    normals = normal(shape, points)
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
    solids = Solids((BALL, CUBE))
    up, down = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [0.0], [-1.0]])
    above = np.array(BALL.centre)[:, None] + 3 * up
    for direction, source, expected in ((down, NOTHING, 0), (up, NOTHING, NOTHING), (down, 0, FLOOR)):
        distance, target = solids.first_hit(Rays(above, direction, np.array([source]), np.zeros(1, int)))
        assert target[0] == expected
        distances = {0: 3 - BALL.radius, NOTHING: np.inf, FLOOR: 3 + BALL.radius}
        assert distance[0] == pytest.approx(distances[expected])


def test_visible_share_of_a_lamp_equals_testing_each_of_its_points():
    solids, lamp = Solids((BALL,)), LAMPS[0]
    lamp_points = lamp.points(4)
    points = np.stack([*np.random.default_rng(0).uniform(-3, 3, (2, 500)), np.zeros(500)])
    sample = np.arange(500) % 4
    share = visible_share(solids, lamp, lamp_points, points, np.full(500, FLOOR), sample)
    slow = []
    for number in range(500):
        rays = lamp_points[:, sample[number]] - points[:, number, None]
        centre = np.array(BALL.centre) - points[:, number]
        close = np.linalg.norm(np.cross(rays.T, centre), axis=1) / np.linalg.norm(rays, axis=0) < BALL.radius
        slow.append(1 - (close & (rays.T @ centre > 0)).mean())
    np.testing.assert_allclose(share, slow)
    assert ((share > 0) & (share < 1)).any()
    assert (share == 0).any()
