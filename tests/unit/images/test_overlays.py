"""Maps as colours: their scale, a map over its image, and sheets."""

import matplotlib
import numpy as np
import pytest

from agop.errors import InputError
from agop.images.overlays import COLOUR_MAPS, Colouring, heat, label, overlay, sheet, signed_picture, tile, top_value

NUMBERS = np.random.default_rng(0)
COMMON = Colouring("common", percentile=100)
ONE_PIXEL = np.zeros((224, 224))
ONE_PIXEL[100, 50] = 0.3
MAPS = {
    "even": NUMBERS.random((8, 8)),
    "peaked": NUMBERS.random((224, 224)) ** 20,
    "heavy tail": NUMBERS.pareto(1.5, (1000, 1000)),
    "mostly zero": np.maximum(NUMBERS.normal(size=(32, 32)) - 1, 0),
    "two values": np.where(NUMBERS.random((40, 40)) < 0.01, 5.0, 1.0),
    "constant": np.full((16, 16), 0.7),
    "one pixel": ONE_PIXEL,
}
UNDEFINED = [np.zeros((2, 3)), np.full((2, 3), np.nan), np.array([[1.0, np.inf, 0], [0, 0, 1]])]


@pytest.mark.parametrize("percentile", [50, 98, 100])
@pytest.mark.parametrize("name", MAPS)
def test_pixels_above_the_top_value_hold_at_most_the_rest_of_the_sum(name, percentile):
    """And they are few. The next value down would be too low to be the top."""
    saliency = MAPS[name]
    top, rest = top_value(saliency, percentile), 1 - percentile / 100
    assert top in saliency
    assert saliency[saliency > top].sum() <= rest * saliency.sum() * (1 + 1e-9)
    assert saliency[saliency >= top].sum() >= rest * saliency.sum() * (1 - 1e-9)
    assert (saliency > top).mean() <= rest


def test_own_scale_is_the_value_relative_to_the_top_value():
    strengths, top = Colouring().strengths(MAPS)
    assert top == 1.0
    for name, saliency in MAPS.items():
        expected = np.minimum(saliency / top_value(saliency, 98), 1)
        assert np.allclose(strengths[name], expected, rtol=1e-9, atol=0)
        assert strengths[name].max() == 1.0
    assert np.array_equal(strengths["one pixel"], ONE_PIXEL > 0)
    assert (strengths["constant"] == 1).all()


def test_common_scale_clips_each_map_first():
    shares = {name: np.minimum(each, top_value(each, 98)) / each.sum() for name, each in MAPS.items()}
    largest = max(share.max() for share in shares.values())
    strengths, top = Colouring("common").strengths(MAPS)
    assert top == pytest.approx(largest)
    for name, share in shares.items():
        assert np.allclose(strengths[name], np.sqrt(share / largest), rtol=1e-9, atol=0)


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1.0, 1e30, 1e307])
@pytest.mark.parametrize("colouring", [Colouring(), COMMON])
def test_unit_of_a_map_does_not_matter(colouring, factor):
    maps = {"a": np.random.default_rng(0).random((5, 4)), "b": np.random.default_rng(1).random((5, 4)) ** 4}
    values, top = colouring.strengths(maps)
    other, same_top = colouring.strengths({"a": maps["a"] * factor, "b": maps["b"]})
    assert same_top == pytest.approx(top)
    for name in maps:
        assert other[name] == pytest.approx(values[name])


@pytest.mark.parametrize("undefined", UNDEFINED)
@pytest.mark.parametrize("colouring", [Colouring(), COMMON])
def test_zero_or_infinite_map_becomes_zeros_and_does_not_change_the_others(colouring, undefined):
    good = np.arange(6.0).reshape(2, 3)
    values, top = colouring.strengths({"undefined": undefined, "good": good})
    assert not values["undefined"].any()
    assert values["undefined"].shape == (2, 3)
    alone, same_top = colouring.strengths({"good": good})
    assert top == same_top > 0
    assert np.array_equal(values["good"], alone["good"])
    values, top = colouring.strengths({"undefined": undefined})
    assert top == 0.0
    assert not values["undefined"].any()
    assert top_value(undefined, 98) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "shared"}, "no scale is named 'shared': known: own, common"),
        ({"colours": "infern"}, "no colour map is named 'infern': did you mean 'inferno'?"),
        ({"percentile": 0}, "percentile is 0: pass a number above 0, at most 100, for example 98"),
        ({"percentile": 101}, "percentile is 101"),
        ({"percentile": float("nan")}, "percentile is nan"),
        ({"opacity": 1.5}, "opacity is 1.5: pass a number from 0 to 1"),
        ({"opacity": -0.1}, "opacity is -0.1"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(InputError, match=message):
        Colouring(**options)


@pytest.mark.parametrize("name", COLOUR_MAPS)
def test_colour_maps_are_matplotlibs(name):
    expected = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    difference = np.abs(heat(np.linspace(0, 1, 256)[None], 1.0, name)[0] - expected)
    assert difference.max() < 40
    assert difference.mean() < 6


def test_overlay_shows_the_image_where_the_map_is_zero_and_opacity_is_that_of_the_largest_value():
    picture, saliency = np.full((1, 3, 3), 200, np.uint8), np.array([[0.5, 1.0, 0.0]])
    gray, full = overlay(picture, saliency, opacity=0.0), overlay(picture, saliency)
    assert (gray == 140).all()
    assert full[0, 1].tolist() == heat(saliency)[0, 1].tolist()
    assert np.ptp(full[0, 2]) < 12
    assert full[0, 2].mean() > 80
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


def test_sheet_of_one_method_has_the_image_and_one_captioned_overlay():
    picture = np.full((224, 224, 3), 100, np.uint8)
    page = sheet(picture, {"vanilla": np.random.default_rng(0).random((224, 224))}, "predicted cat")
    assert page.size == (2 * 224 + 8, 224 + 22)
    for left in (0, 232):
        assert np.asarray(page)[:22, left : left + 224].min() < 100  # text


@pytest.mark.parametrize(("side", "image_is_visible"), [(40, True), (8, False)])
def test_opaque_map_covers_an_image_of_few_pixels(side, image_is_visible):
    zeros = np.zeros((side, side))
    pictures = [np.full((side, side, 3), value, np.uint8) for value in (0, 200)]
    dark, bright = (tile(picture, zeros, Colouring()) for picture in pictures)
    assert bool((bright > dark).all()) == image_is_visible
    dark, bright = (tile(picture, zeros, Colouring(opacity=0.9)) for picture in pictures)
    assert (bright > dark).all()


def test_label_and_sheet_say_if_a_map_is_zero_constant_or_not_finite():
    picture, zeros = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40))
    assert label("vanilla", np.eye(40)) == "vanilla"
    assert label("vanilla", zeros + 1) == "vanilla (constant)"
    assert label("vanilla", zeros) == "vanilla (all zero)"
    assert label("vanilla", zeros * np.nan) == "vanilla (not finite)"
    plain, marked = sheet(picture, {"vanilla": np.eye(40)}), sheet(picture, {"vanilla": zeros})
    assert plain.size == marked.size
    assert np.asarray(plain)[:20].tolist() != np.asarray(marked)[:20].tolist()


def test_maps_with_signs_are_blue_and_red_on_one_scale_and_zero_shows_the_image():
    colouring = Colouring(colours="RdBu_r", percentile=100)
    saliency = np.array([[-4.0, -1.0, 0.0, 1.0, 2.0]])
    strengths, top = colouring.strengths({"map": saliency, "zeros": 0 * saliency})
    assert top == 1
    np.testing.assert_allclose(strengths["map"], 0.5 + saliency / 8)
    np.testing.assert_allclose(strengths["zeros"], 0.5)
    red, _, blue = overlay(np.full((1, 5, 3), 100, np.uint8), strengths["map"], 1.0, "RdBu_r")[0].astype(int).T
    assert (blue > red).tolist() == [True, True, False, False, False]
    assert (red > blue).tolist() == [False, False, False, True, True]
    picture = np.stack([np.zeros((1, 5, 3), np.uint8), np.full((1, 5, 3), 255, np.uint8)])
    spread = np.ptp([overlay(each, strengths["map"], 1.0, "RdBu_r").mean(-1)[0] for each in picture], axis=0)
    assert spread.argmax() == 2  # the image is visible where there is no evidence
    with pytest.raises(InputError, match="scale is 'common': maps with signs, in the colours RdBu_r, have their own"):
        Colouring("common", colours="RdBu_r")
