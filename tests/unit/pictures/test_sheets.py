"""Maps on one scale."""

import numpy as np
import pytest

from agop.pictures.heat import heat
from agop.pictures.sheets import shaded, shares, sheet, shown, told


def test_a_pixel_shows_the_root_of_its_share_over_the_largest_share_of_all_maps():
    values, top = shares({"sharp": np.array([[0.0, 3.0], [1.0, 0.0]]), "even": np.full((2, 2), 7.0)})
    assert top == pytest.approx(0.75)
    assert values["sharp"] == pytest.approx(np.sqrt([[0, 1], [1 / 3, 0]]))
    assert values["even"] == pytest.approx(np.full((2, 2), np.sqrt(0.25 / 0.75)))


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1.0, 1e30, 1e307])
def test_the_unit_of_a_map_does_not_matter(factor):
    maps = {"a": np.random.default_rng(0).random((5, 4)), "b": np.random.default_rng(1).random((5, 4)) ** 4}
    values, top = shares(maps)
    other, same_top = shares({"a": maps["a"] * factor, "b": maps["b"]})
    assert same_top == pytest.approx(top)
    for name in maps:
        assert other[name] == pytest.approx(values[name])


def test_the_brightest_pixel_of_all_is_one_and_every_map_keeps_its_mass():
    maps = {str(power): np.random.default_rng(power).random((6, 6)).astype(np.float32) ** power for power in (1, 3, 9)}
    values, top = shares(maps)
    assert max(float(part.max()) for part in values.values()) == 1.0
    assert [float((part**2).sum() * top) for part in values.values()] == pytest.approx([1, 1, 1])
    assert all(part.dtype == np.float64 and part.min() >= 0 for part in values.values())


@pytest.mark.parametrize("dead", [np.zeros((2, 3)), np.full((2, 3), np.nan), np.array([[1.0, np.inf, 0], [0, 0, 1]])])
def test_a_map_that_says_nothing_is_zero_and_leaves_the_others_as_they_are(dead):
    good = np.arange(6.0).reshape(2, 3)
    values, top = shares({"dead": dead, "good": good})
    assert not values["dead"].any()
    assert values["dead"].shape == (2, 3)
    alone, same_top = shares({"good": good})
    assert top == same_top
    assert np.array_equal(values["good"], alone["good"])


def test_without_anything_to_show_the_top_is_zero():
    assert shares({}) == ({}, 0.0)
    values, top = shares({"dead": np.zeros((2, 2))})
    assert top == 0.0
    assert not values["dead"].any()


@pytest.mark.parametrize("side", [8, 40])
def test_in_a_sheet_equal_colours_are_equal_shares(side):
    """A map spread over four times the pixels is darker, whatever its unit; alone it is as bright as any."""
    picture = np.zeros((side, side, 3), np.uint8)
    sharp, wide = np.zeros((side, side)), np.zeros((side, side))
    sharp[0, 0], wide[:2, :2] = 1.0, 100.0
    page = np.asarray(sheet(picture, {"sharp": sharp, "wide": wide})).astype(int)
    width = (page.shape[1] - 2 * 8) // 3
    corners = [page[22, panel * (width + 8)].tolist() for panel in (1, 2)]
    assert corners[0] == heat(np.ones((1, 1)), 1.0)[0, 0].tolist()
    assert sum(corners[1]) < sum(corners[0])
    assert np.asarray(shown(picture, wide))[0, 0].tolist() == corners[0]


def test_a_map_is_drawn_over_a_picture_of_many_pixels_and_alone_over_one_of_few():
    for side, seen in ((40, True), (8, False)):
        place = np.zeros((side, side))
        dark, bright = (shaded(np.full((side, side, 3), value, np.uint8), place) for value in (0, 200))
        assert bool((bright > dark).all()) == seen


def test_the_caption_says_why_there_is_nothing_to_see():
    assert told("vanilla", np.ones((2, 2))) == "vanilla"
    assert told("vanilla", np.zeros((2, 2))) == "vanilla (all zero)"
    assert told("vanilla", np.full((2, 2), np.nan)) == "vanilla (not finite)"
