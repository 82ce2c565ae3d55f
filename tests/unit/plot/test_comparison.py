"""agop.plot.compare."""

from itertools import pairwise

import matplotlib
import numpy as np
import pytest

import agop
from agop.errors import InputError
from agop.pictures import heat
from agop.pictures.colouring import top_value
from agop.plot.figures import outline
from agop.plot.inputs import picture_of
from tests.drawn_figures import IMAGE, MAP, MASK, NUMBERS, colour_bar, pixels, texts

MAPS = {"even": NUMBERS.random((2, 6, 9)) + 0.5, "own": NUMBERS.random((2, 6, 9)) ** 4}
COMMON = {"scale": "common", "percentile": 100}


@pytest.mark.parametrize("percentile", [60, 98])
def test_compare_draws_each_map_on_its_own_clipped_scale(percentile):
    figure = agop.plot.compare(IMAGE[None].expand(2, -1, -1, -1), MAPS, percentile=percentile)
    for row in range(2):
        for axes, values in zip(figure.axes[3 * row + 1 : 3 * row + 3], MAPS.values(), strict=True):
            top = top_value(values[row], percentile)
            assert np.array_equal(pixels(axes), heat.heat(np.minimum(values[row], top)))
    bar = colour_bar(figure)
    assert bar.get_ylim() == (0, 1)
    assert bar.get_ylabel() == "relative value"


def test_compare_draws_transparent_maps_over_their_images():
    figure = agop.plot.compare([IMAGE], {"own": MAP[None]}, opacity=0.6, colours="viridis")
    expected = heat.overlay(picture_of(IMAGE), MAP, top_value(MAP, 98), 0.6, "viridis")
    assert np.array_equal(pixels(figure.axes[1]), expected)
    colours = colour_bar(figure)._colorbar.mappable.to_rgba([0, 1], bytes=True)[:, :3]
    assert colours.tolist() == heat.heat(np.array([[0.0, 1.0]]), 1.0, "viridis")[0].tolist()


@pytest.mark.parametrize("draw", [agop.plot.compare, agop.plot.show, agop.plot.overlay])
@pytest.mark.parametrize(
    ("option", "message"),
    [({"scale": "shared"}, "no scale"), ({"percentile": 0}, "percentile is 0"), ({"colours": "pink"}, "no colour map")],
)
def test_invalid_colours_raise(draw, option, message):
    with pytest.raises(InputError, match=message):
        draw([IMAGE], {"own": [MAP]}, **option)


def test_compare_draws_the_root_of_each_share_on_the_common_scale():
    maps = {"even": np.ones((2, 6, 9)), "own": NUMBERS.random((2, 6, 9)) ** 4}
    figure = agop.plot.compare(IMAGE[None].expand(2, -1, -1, -1), maps, masks=np.stack([MASK, ~MASK]), **COMMON)
    shares = {name: values / values.sum((1, 2), keepdims=True) for name, values in maps.items()}
    top = max(share.max() for share in shares.values())
    for row in range(2):
        image, *panels = figure.axes[3 * row : 3 * row + 3]
        assert np.array_equal(pixels(image), picture_of(IMAGE))
        for axes, share in zip(panels, shares.values(), strict=True):
            assert np.array_equal(pixels(axes), heat.heat(np.sqrt(share[row] / top), 1.0))
            assert len(axes.collections[0].get_segments()) == len(outline((MASK, ~MASK)[row]))
    assert colour_bar(figure).get_ylim() == pytest.approx((0, top))


@pytest.mark.parametrize("scale", ["own", "common"])
def test_scaling_a_map_changes_nothing(scale):
    maps = [{"a": MAP[None] * unit, "b": MAP[None] ** 3} for unit in (1, 1e-8, 1e20)]
    figures = [agop.plot.compare(IMAGE[None], columns, scale=scale) for columns in maps]
    first, *others = [[pixels(axes) for axes in figure.axes[:3]] for figure in figures]
    for other in others:
        assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(first, other, strict=True))


def test_colour_bar_has_round_percentages_at_their_positions():
    for power in (1, 8, 60):
        figure = agop.plot.compare(IMAGE[None], {"own": MAP[None] ** power}, **COMMON)
        bar = colour_bar(figure)
        figure.draw_without_rendering()
        ticks, labels = bar.get_yticks(), [label.get_text() for label in bar.get_yticklabels()]
        assert [float(label.removesuffix(" %")) for label in labels] == pytest.approx(100 * ticks, rel=0.01)
        assert (np.diff(ticks) > 0).all()
        assert (ticks[0], ticks[-1]) == pytest.approx(bar.get_ylim())
        assert bar.get_ylabel() == "share of the map"


def test_row_and_column_titles_are_wrapped_to_fit():
    maps = {"integrated-gradients@a-long-baseline": MAP[None], "vanilla": MAP[None]}
    figure = agop.plot.compare([IMAGE], maps, titles=["class 3"])
    figure.draw_without_rendering()
    assert {"image", "vanilla", "class 3"} <= texts(figure)
    heads = [axes.title.get_window_extent() for axes in figure.axes[:3]]
    assert all(a.x1 < b.x0 for a, b in pairwise(heads))
    assert all(box.y1 <= figure.bbox.height for box in heads)
    assert figure.axes[1].get_title().replace("\n", "") == "integrated-gradients@a-long-baseline"


def test_large_fonts_stay_inside_the_figure():
    with matplotlib.rc_context({"font.size": 18}):
        figure = agop.plot.compare([IMAGE], {"integrated-gradients": MAP[None]}, titles=["metal"])
        figure.draw_without_rendering()
        page, tight = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert tight.x0 >= 0
    assert tight.y0 >= 0
    assert tight.x1 <= page.x1
    assert tight.y1 <= page.y1


@pytest.mark.parametrize(
    ("count", "maps", "more", "message"),
    [
        (2, {"own": MAP[None]}, {}, r"own has shape \(1, 6, 9\): pass maps \(2,6,9\)"),
        (1, {"own": MAP[None, :5]}, {}, r"own has shape \(5, 9\), its image \(6, 9\)"),
        (1, {}, {}, "maps is empty"),
        (1, MAP[None], {}, "maps is a ndarray"),
        (1, {"own": MAP[None]}, {"masks": [MASK, MASK]}, "1 images and 2 masks"),
        (1, {"own": MAP[None]}, {"titles": []}, "1 images and 0 titles"),
        (0, {"own": MAP[None]}, {}, "0 images"),
        (101, {"own": MAP[None]}, {}, "101 images: pass 1 to 100"),
    ],
)
def test_mismatched_inputs_raise(count, maps, more, message):
    with pytest.raises(InputError, match=message):
        agop.plot.compare(IMAGE[None].expand(count, -1, -1, -1), maps, **more)
