"""Sheets."""

import numpy as np
import pytest

from agop.pictures.colouring import Colouring
from agop.pictures.heat import heat
from agop.pictures.sheets import label, sheet, tile


def corner(page, panel, panels):
    """Upper left pixel of a panel."""
    width = (page.width - (panels - 1) * 8) // panels
    return np.asarray(page)[22, panel * (width + 8)].tolist()


@pytest.mark.parametrize("side", [8, 40])
def test_each_map_has_its_own_scale_or_equal_colours_are_equal_shares(side):
    """On the common scale a map spread over four times the pixels is darker, whatever its unit."""
    picture = np.zeros((side, side, 3), np.uint8)
    sharp, wide = np.zeros((side, side)), np.zeros((side, side))
    sharp[0, 0], wide[:2, :2] = 1.0, 100.0
    brightest = heat(np.ones((1, 1)))[0, 0].tolist()
    own = sheet(picture, {"sharp": sharp, "wide": wide})
    assert [corner(own, panel, 3) for panel in (1, 2)] == [brightest, brightest]
    common = sheet(picture, {"sharp": sharp, "wide": wide}, colouring=Colouring("common"))
    assert corner(common, 1, 3) == brightest
    assert sum(corner(common, 2, 3)) < sum(brightest)


def test_broad_map_beside_a_peaked_one_is_not_blank():
    """As GradCAM's beside gradients at 224 px: on the common scale it is almost invisible."""
    y, x = np.mgrid[:224, :224]
    picture = np.full((224, 224, 3), 100, np.uint8)
    maps = {"broad": np.exp(-((x - 60) ** 2 + (y - 60) ** 2) / 5000), "peaked": np.zeros((224, 224))}
    maps["peaked"][150, 150] = 1.0
    own, common = (sheet(picture, maps, colouring=colouring) for colouring in (Colouring(), Colouring("common")))
    panels = [np.asarray(page)[22:, 232:456].astype(int) for page in (own, common)]
    assert np.ptp(panels[0], axis=-1).max() > 150
    assert np.ptp(panels[1], axis=-1).max() < 15


def test_colouring_sets_opacity_and_colours():
    picture, saliency = np.full((40, 40, 3), 200, np.uint8), np.ones((40, 40))
    opaque = sheet(picture, {"a": saliency}, colouring=Colouring(colours="viridis"))
    assert corner(opaque, 1, 2) == heat(np.ones((1, 1)), 1.0, "viridis")[0, 0].tolist()
    assert corner(sheet(picture, {"a": saliency}, colouring=Colouring(opacity=0)), 1, 2) == [140, 140, 140]


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
