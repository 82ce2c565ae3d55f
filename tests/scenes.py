"""Scenes that the tests of the ray caster share."""

import numpy as np

from agop.scenarios.clevr.render.images import render
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.scene import Scene, random_scene

SCENES = [random_scene(7, index) for index in range(8)]
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
