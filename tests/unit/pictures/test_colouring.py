"""Scales of maps: own or common, clipped at a percentile."""

import numpy as np
import pytest

from agop.errors import InputError
from agop.pictures.colouring import Colouring, top_value

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


@pytest.mark.parametrize("side", [8, 224])
def test_pixel_with_more_than_the_rest_of_the_sum_is_not_clipped(side):
    """In a map of few pixels that is the top pixel, so nothing is clipped."""
    saliency = np.ones((side, side))
    saliency[0, 0] = 0.03 * side * side
    strengths, _ = Colouring().strengths({"map": saliency})
    assert strengths["map"] == pytest.approx(saliency / saliency.max())
    saliency[0, 0] = 0.01 * side * side
    assert top_value(saliency, 98) == 1.0


def test_own_scale_is_the_value_relative_to_the_top_value():
    strengths, top = Colouring().strengths(MAPS)
    assert top == 1.0
    for name, saliency in MAPS.items():
        expected = np.minimum(saliency / top_value(saliency, 98), 1)
        assert np.allclose(strengths[name], expected, rtol=1e-9, atol=0)
        assert strengths[name].max() == 1.0
    assert np.array_equal(strengths["one pixel"], ONE_PIXEL > 0)
    assert (strengths["constant"] == 1).all()


def test_own_scale_does_not_depend_on_the_other_maps():
    strengths, _ = Colouring().strengths(MAPS)
    for name, saliency in MAPS.items():
        assert np.array_equal(Colouring().strengths({name: saliency})[0][name], strengths[name])


def test_common_scale_is_the_root_of_the_share_over_the_largest_share():
    assert COMMON.strengths({}) == ({}, 0.0)
    sharp, even = np.array([[0.0, 3.0], [1.0, 0.0]], dtype=np.float32), np.full((2, 2), 7.0)
    values, top = COMMON.strengths({"sharp": sharp, "even": even})
    assert top == pytest.approx(0.75)
    assert values["sharp"] == pytest.approx(np.sqrt([[0, 1], [1 / 3, 0]]))
    assert values["sharp"].max() == 1.0
    assert values["sharp"].dtype == np.float64
    assert values["even"] == pytest.approx(np.full((2, 2), np.sqrt(0.25 / 0.75)))


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
