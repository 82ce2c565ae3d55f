"""Rendered images: the laws that light, shadows, colours and mirrors obey."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from agop.errors import InputError
from agop.scenarios.clevr.render.camera import CAMERA
from agop.scenarios.clevr.render.images import object_masks, render, srgb
from agop.scenarios.clevr.render.lamps import LAMPS
from agop.scenarios.clevr.render.objects import COLORS, SceneObject
from agop.scenarios.clevr.render.scene import Scene
from agop.scenarios.clevr.render.shading import radiance
from agop.scenarios.clevr.render.visibility import pixel_rays, visible_objects
from agop.scenarios.clevr.render.world import World
from tests.scenes import BALL, CUBE, SCENES, alone, pixels, project


def test_image_has_its_shape_and_no_black_pixels():
    for scene in SCENES[:4]:
        image = render(scene, 64, 64)
        assert image.shape == (64, 64, 3)
        assert image.dtype == np.uint8
        assert image.max(axis=-1).min() > 15


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


def test_larger_lamps_cast_softer_shadows():
    """Measured by the steepest step of a ball's shadow on the floor, with one lamp."""

    def steepest(radius):
        lamps = (replace(LAMPS[0], radius=radius),)
        bare, shaded = (pixels(Scene(objects, lamps=lamps), 240, 160, 2) for objects in ((), (BALL,)))
        shadow = (shaded / bare).mean(axis=-1)
        shadow[dilated(object_masks(alone(BALL), 240, 160)[0], 8)] = np.nan
        return np.nanmax(np.abs(np.diff(shadow, axis=1)))

    assert steepest(0.05) > 2 * steepest(0.7) > 2.5 * steepest(1.5)


def dilated(mask, reach):
    """The mask, wider by that many pixels on all sides."""
    wide = np.pad(mask, reach)
    return np.lib.stride_tricks.sliding_window_view(wide, (2 * reach + 1,) * 2).any(axis=(2, 3))


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
    world, rays = World.of(objects, LAMPS, 1), pixel_rays(CAMERA, 192, 128, np.arange(128), dtype=np.float32)
    light = [radiance(world, rays, bounces) for bounces in range(4)]
    changed = [(np.abs(more - less).max(axis=0) > 0.002).sum() for less, more in pairwise(light)]
    # Each further bounce changes fewer pixels, and the third still some.
    assert changed[0] > changed[1] > changed[2] > 0
    np.testing.assert_array_equal(radiance(world, rays), light[3])


def test_mirror_images_in_metal_are_slightly_blurred(monkeypatch):
    scene = Scene((SceneObject("cube", "large", "metal", "gray", 0.0, 1.5, 41.0), replace(BALL, color="yellow", x=0.9)))
    # Inside one face of the cube, at the edge of the ball's mirror image.
    patch = np.s_[52:58, 142:158]
    assert object_masks(scene, 240, 160)[0][patch].all()

    def steepest():
        return np.abs(np.diff(pixels(scene, 240, 160, 3)[patch], axis=1)).max()

    blurred = steepest()
    monkeypatch.setattr("agop.scenarios.clevr.render.world._JITTER", 0.0)
    assert steepest() > 1.3 * blurred


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
    patch = image[r - 10 : r + 11, c - 10 : c + 11]
    neighbours = (patch[:-2, 1:-1] + patch[2:, 1:-1] + patch[1:-1, :-2] + patch[1:-1, 2:]) / 4
    # At the peak of a highlight the difference is a little above 2.
    assert np.abs(patch[1:-1, 1:-1] - neighbours).max() < 3


def test_small_image_is_the_average_of_a_large_one():
    scene = SCENES[2]
    large = pixels(scene, 240, 160, 2)
    small, averaged = pixels(scene, 60, 40, 3), large.reshape(40, 4, 60, 4, 3).mean(axis=(1, 3))
    square, squeezed = pixels(scene, 40, 40, 3), large.reshape(40, 4, 40, 6, 3).mean(axis=(1, 3))
    assert np.abs(small - averaged).mean() < 1
    assert np.abs(square - squeezed).mean() < 1
    assert np.abs(small - averaged[::-1]).mean() > 10


def test_image_does_not_depend_on_the_number_of_rays_per_block(monkeypatch):
    whole = render(SCENES[1], 24, 16, 2), visible_objects(SCENES[1].objects, SCENES[1].camera, 24, 16)
    monkeypatch.setattr("agop.scenarios.clevr.render.visibility._BLOCK", 200)
    parts = render(SCENES[1], 24, 16, 2), visible_objects(SCENES[1].objects, SCENES[1].camera, 24, 16)
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


def test_no_rays_and_no_pixels_raise():
    with pytest.raises(InputError, match="rays is 0"):
        render(SCENES[0], 8, 8, 0)
    with pytest.raises(InputError, match="width is 0"):
        object_masks(SCENES[0], 0, 8)
