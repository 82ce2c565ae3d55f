"""Random scenes: reproducible, varied, and every object visible."""

import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from agop.errors import UnknownNameError
from agop.scenarios.clevr.render.camera import CAMERA
from agop.scenarios.clevr.render.images import object_masks, render
from agop.scenarios.clevr.render.lamps import LAMPS
from agop.scenarios.clevr.render.objects import COLORS, SHAPES
from agop.scenarios.clevr.render.scene import random_scene, scene_objects
from tests.scenes import BALL, SCENES


def test_seed_and_index_decide_the_scene_and_image_in_every_process():
    code = (
        "import hashlib\n"
        "from agop.scenarios.clevr.render.scene import random_scene\n"
        "from agop.scenarios.clevr.render.images import render\n"
        "s = random_scene(7, 3); print(s); print(hashlib.sha256(render(s, 32, 24).tobytes()).hexdigest())"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    scene = random_scene(7, 3)
    assert len({random_scene(seed, index) for seed in (7, 8) for index in (3, 4)}) == 4
    assert process.stdout == f"{scene}\n{hashlib.sha256(render(scene, 32, 24).tobytes()).hexdigest()}\n"


def test_scene_objects_equal_those_of_the_scene_except_for_their_position():
    for index, scene in enumerate(SCENES):
        assert [replace(each, x=0.0, y=0.0) for each in scene.objects] == scene_objects(7, index)


def test_objects_are_placed_again_until_each_shows_on_200_pixels(monkeypatch):
    for scene in (*SCENES, random_scene(7, 10)):
        assert object_masks(scene, 480, 320).sum(axis=(1, 2)).min() >= 200
    monkeypatch.setattr("agop.scenarios.clevr.render.scene.FEWEST_PIXELS", 0)
    assert object_masks(random_scene(7, 10), 480, 320).sum(axis=(1, 2)).min() < 200


def test_all_materials_colours_shapes_and_sizes_occur():
    objects = [each for scene in SCENES for each in scene.objects]
    assert 0.25 < np.mean([each.material == "metal" for each in objects]) < 0.75
    assert {each.color for each in objects} == set(COLORS)
    assert {each.shape for each in objects} == set(SHAPES)
    assert {each.size for each in objects} == {"large", "small"}


def test_cameras_and_lamps_are_jittered():
    cameras = np.array([scene.camera.position for scene in SCENES]) - CAMERA.position
    lamps = np.array([[lamp.position for lamp in scene.lamps] for scene in SCENES])
    lamps -= [lamp.position for lamp in LAMPS]
    for offsets, largest in ((cameras, 0.5), (lamps, 1.0)):
        assert 0.5 * largest < np.abs(offsets).max() <= largest
        assert len(np.unique(offsets)) == offsets.size


def test_unknown_colour_raises_with_suggestions():
    with pytest.raises(UnknownNameError, match=r"color.*pink.*purple"):
        replace(BALL, color="pink")
