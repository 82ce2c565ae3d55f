"""Maps on one scale, and sheets."""

import numpy as np
import pytest

from agop.pictures.heat import heat
from agop.pictures.sheets import label, large_tile, shares, sheet, tile


def test_values_are_the_root_of_the_share_over_the_largest_share():
    assert shares({}) == ({}, 0.0)
    sharp, even = np.array([[0.0, 3.0], [1.0, 0.0]], dtype=np.float32), np.full((2, 2), 7.0)
    values, top = shares({"sharp": sharp, "even": even})
    assert top == pytest.approx(0.75)
    assert values["sharp"] == pytest.approx(np.sqrt([[0, 1], [1 / 3, 0]]))
    assert values["sharp"].max() == 1.0
    assert values["sharp"].dtype == np.float64
    assert values["even"] == pytest.approx(np.full((2, 2), np.sqrt(0.25 / 0.75)))


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1.0, 1e30, 1e307])
def test_unit_of_a_map_does_not_matter(factor):
    maps = {"a": np.random.default_rng(0).random((5, 4)), "b": np.random.default_rng(1).random((5, 4)) ** 4}
    values, top = shares(maps)
    other, same_top = shares({"a": maps["a"] * factor, "b": maps["b"]})
    assert same_top == pytest.approx(top)
    for name in maps:
        assert other[name] == pytest.approx(values[name])


@pytest.mark.parametrize("dead", [np.zeros((2, 3)), np.full((2, 3), np.nan), np.array([[1.0, np.inf, 0], [0, 0, 1]])])
def test_zero_or_infinite_map_becomes_zeros_and_does_not_change_the_others(dead):
    good = np.arange(6.0).reshape(2, 3)
    values, top = shares({"dead": dead, "good": good})
    assert not values["dead"].any()
    assert values["dead"].shape == (2, 3)
    alone, same_top = shares({"good": good})
    assert top == same_top
    assert np.array_equal(values["good"], alone["good"])
    values, top = shares({"dead": dead})
    assert top == 0.0
    assert not values["dead"].any()


@pytest.mark.parametrize("side", [8, 40])
def test_equal_colours_in_a_sheet_are_equal_shares(side):
    """A map spread over four times the pixels is darker, whatever its unit. Alone it is as bright as any."""
    picture = np.zeros((side, side, 3), np.uint8)
    sharp, wide = np.zeros((side, side)), np.zeros((side, side))
    sharp[0, 0], wide[:2, :2] = 1.0, 100.0
    page = np.asarray(sheet(picture, {"sharp": sharp, "wide": wide})).astype(int)
    width = (page.shape[1] - 2 * 8) // 3
    corners = [page[22, panel * (width + 8)].tolist() for panel in (1, 2)]
    assert corners[0] == heat(np.ones((1, 1)), 1.0)[0, 0].tolist()
    assert sum(corners[1]) < sum(corners[0])
    assert np.asarray(large_tile(picture, wide))[0, 0].tolist() == corners[0]


@pytest.mark.parametrize(("side", "image_is_visible"), [(40, True), (8, False)])
def test_map_covers_an_image_of_few_pixels(side, image_is_visible):
    zeros = np.zeros((side, side))
    dark, bright = (tile(np.full((side, side, 3), value, np.uint8), zeros) for value in (0, 200))
    assert bool((bright > dark).all()) == image_is_visible


def test_label_and_sheet_say_if_a_map_is_zero_or_not_finite():
    picture, zeros = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40))
    assert label("vanilla", zeros + 1) == "vanilla"
    assert label("vanilla", zeros) == "vanilla (all zero)"
    assert label("vanilla", zeros * np.nan) == "vanilla (not finite)"
    plain, marked = sheet(picture, {"vanilla": zeros + 1}), sheet(picture, {"vanilla": zeros})
    assert plain.size == marked.size
    assert np.asarray(plain)[:20].tolist() != np.asarray(marked)[:20].tolist()
