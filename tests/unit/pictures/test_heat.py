"""Colours of a map, and a map over its image."""

import numpy as np
import pytest

from agop.pictures.heat import heat, overlay


def test_lightness_increases_with_the_value_and_zero_maps_are_dark():
    colours = heat(np.linspace(0, 1, 50)[None])[0].astype(float)
    lightness = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()
    assert heat(np.zeros((3, 3))).max() <= 4
    assert heat(np.full((1, 1), 1.0), scale=2.0).tolist() == heat(np.array([[1.0, 2.0]]))[:, :1].tolist()


def test_overlay_shows_the_map_where_it_is_large_and_the_image_elsewhere():
    picture = np.full((4, 4, 3), 200, np.uint8)
    saliency = np.zeros((4, 4))
    saliency[1, 2] = 3
    pixels = overlay(picture, saliency).astype(int)
    assert pixels[1, 2].tolist() == heat(saliency)[1, 2].tolist()
    assert np.ptp(pixels[3, 3]) < 12
    assert pixels[3, 3].mean() > 80


@pytest.mark.parametrize("scale", [None, 4.0])
def test_overlay_does_not_depend_on_the_unit_of_the_map(scale):
    picture = np.random.default_rng(0).integers(0, 255, (5, 5, 3)).astype(np.uint8)
    saliency = np.random.default_rng(1).random((5, 5))
    other = overlay(picture, 8 * saliency, scale and 8 * scale)
    assert np.array_equal(overlay(picture, saliency, scale), other)
