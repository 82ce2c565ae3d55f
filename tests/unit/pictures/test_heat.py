"""Colours of a map, and a map over its image."""

import matplotlib
import numpy as np
import pytest

from agop.pictures.heat import COLOUR_MAPS, heat, overlay, signed_picture


def test_lightness_increases_with_the_value_and_zero_maps_are_dark():
    colours = heat(np.linspace(0, 1, 50)[None])[0].astype(float)
    lightness = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()
    assert heat(np.zeros((3, 3))).max() <= 4
    assert heat(np.full((1, 1), 1.0), top=2.0).tolist() == heat(np.array([[1.0, 2.0]]))[:, :1].tolist()


def test_overlay_shows_the_map_where_it_is_large_and_the_image_elsewhere():
    picture = np.full((4, 4, 3), 200, np.uint8)
    saliency = np.zeros((4, 4))
    saliency[1, 2] = 3
    pixels = overlay(picture, saliency).astype(int)
    assert pixels[1, 2].tolist() == heat(saliency)[1, 2].tolist()
    assert np.ptp(pixels[3, 3]) < 12
    assert pixels[3, 3].mean() > 80


@pytest.mark.parametrize("top", [None, 4.0])
def test_overlay_does_not_depend_on_the_unit_of_the_map(top):
    picture = np.random.default_rng(0).integers(0, 255, (5, 5, 3)).astype(np.uint8)
    saliency = np.random.default_rng(1).random((5, 5))
    other = overlay(picture, 8 * saliency, top and 8 * top)
    assert np.array_equal(overlay(picture, saliency, top), other)


@pytest.mark.parametrize("name", COLOUR_MAPS)
def test_colour_maps_are_matplotlibs(name):
    expected = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    difference = np.abs(heat(np.linspace(0, 1, 256)[None], 1.0, name)[0] - expected)
    assert difference.max() < 40
    assert difference.mean() < 6


def test_opacity_is_that_of_the_largest_value():
    picture, saliency = np.full((1, 2, 3), 200, np.uint8), np.array([[0.5, 1.0]])
    gray, full = overlay(picture, saliency, opacity=0.0), overlay(picture, saliency)
    assert (gray == 140).all()
    assert full[0, 1].tolist() == heat(saliency)[0, 1].tolist()
    half = overlay(picture, saliency, opacity=0.5).astype(int)
    assert np.abs(half - (gray / 2 + full / 2)).max() <= 1
    assert overlay(picture, saliency, colours="gray")[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("sign", [1, -1])
def test_zero_is_gray_and_the_largest_absolute_value_white(sign):
    values = sign * np.array([[[0.0, 4.0, -4.0], [2.0, -2.0, 1.0]]])
    expected = np.array([[128, 255, 0], [191, 64, 159]])
    assert np.abs(signed_picture(values).astype(int) - expected[..., None]).max() <= 1
    colour = signed_picture(np.concatenate([values, 0 * values, values / 2]))
    assert colour[0, 1].tolist() == [255, 128, 191]
    assert np.array_equal(signed_picture(np.concatenate([values, values / 2])), signed_picture(values))
    assert (signed_picture(0 * values) == 128).all()
