"""Figures of maps: show, compare and overlay."""

import os
import pickle
import subprocess
import sys
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import agop
from agop.errors import InputError
from agop.images.overlays import heat, top_value
from agop.images.overlays import overlay as map_over_image
from tests.drawn_figures import IMAGE, MAP, MASK, NUMBERS, colour_bar, displayed, drawn, outline_length, pixels, texts

PICTURE = (255 * IMAGE).round().permute(1, 2, 0).numpy()
MAPS = {"even": NUMBERS.random((2, 6, 9)) + 0.5, "own": NUMBERS.random((2, 6, 9)) ** 4}
COMMON = {"scale": "common", "percentile": 100}


def edges(mask):
    """Number of pixel edges between inside and outside."""
    padded = np.pad(mask, 1).astype(int)
    return sum(int(np.abs(np.diff(padded, axis=axis)).sum()) for axis in (0, 1))


@pytest.mark.parametrize("percentile", [60, 98])
def test_compare_draws_each_map_on_its_own_clipped_scale(percentile):
    figure = agop.plot.compare(IMAGE[None].expand(2, -1, -1, -1), MAPS, percentile=percentile)
    for row in range(2):
        for axes, values in zip(figure.axes[3 * row + 1 : 3 * row + 3], MAPS.values(), strict=True):
            top = top_value(values[row], percentile)
            assert np.array_equal(pixels(axes), heat(np.minimum(values[row], top)))
    bar = colour_bar(figure)
    assert bar.get_ylim() == (0, 1)
    assert bar.get_ylabel() == "relative value"


def test_compare_draws_transparent_maps_over_their_images():
    figure = agop.plot.compare([IMAGE], {"own": MAP[None]}, opacity=0.6, colours="viridis")
    expected = map_over_image(PICTURE, np.minimum(MAP / top_value(MAP, 98), 1), 0.6, "viridis")
    assert np.array_equal(pixels(figure.axes[1]), expected)
    colours = colour_bar(figure)._colorbar.mappable.to_rgba([0, 1], bytes=True)[:, :3]
    assert colours.tolist() == heat(np.array([[0.0, 1.0]]), 1.0, "viridis")[0].tolist()


def test_compare_draws_the_root_of_each_share_on_the_common_scale():
    maps = {"even": np.ones((2, 6, 9)), "own": NUMBERS.random((2, 6, 9)) ** 4}
    figure = agop.plot.compare(IMAGE[None].expand(2, -1, -1, -1), maps, masks=np.stack([MASK, ~MASK]), **COMMON)
    shares = {name: values / values.sum((1, 2), keepdims=True) for name, values in maps.items()}
    top = max(share.max() for share in shares.values())
    for row in range(2):
        image, *panels = figure.axes[3 * row : 3 * row + 3]
        assert np.array_equal(pixels(image), PICTURE)
        for axes, share in zip(panels, shares.values(), strict=True):
            assert np.array_equal(pixels(axes), heat(np.sqrt(share[row] / top), 1.0))
            assert outline_length(axes) == edges((MASK, ~MASK)[row])
    assert colour_bar(figure).get_ylim() == pytest.approx((0, top))


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
    assert min(tight.x0, tight.y0, page.x1 - tight.x1, page.y1 - tight.y1) >= 0


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


@pytest.mark.parametrize("percentile", [60, 100])
def test_overlay_draws_the_map_over_its_image_with_a_bar_up_to_its_top_value(percentile):
    values = torch.from_numpy(5 * MAP).requires_grad_()
    figure = agop.plot.overlay(IMAGE, values, mask=MASK, title="mine", percentile=percentile, opacity=0.7)
    axes, bar = figure.axes
    top = top_value(5 * MAP, percentile)
    assert (top < 5 * MAP.max()) == (percentile < 100)
    assert np.array_equal(pixels(axes), map_over_image(PICTURE, np.minimum(5 * MAP / top, 1), 0.7))
    assert outline_length(axes) == edges(MASK)
    assert bar.get_ylim() == (0, top)
    assert bar._colorbar.extend == ("max" if percentile < 100 else "neither")
    assert bar.get_ylabel() == "map value"
    assert axes.get_title() == "mine"


def test_overlay_on_the_common_scale_shows_shares():
    figure = agop.plot.overlay(IMAGE, MAP, scale="common", percentile=100)
    assert np.array_equal(pixels(figure.axes[0]), map_over_image(PICTURE, np.sqrt(MAP / MAP.max())))
    assert colour_bar(figure).get_ylim() == pytest.approx((0, MAP.max() / MAP.sum()))
    assert colour_bar(figure).get_ylabel() == "share of the map"


def test_overlay_draws_into_given_axes():
    whole = Figure()
    left, right = whole.subfigures(1, 2)
    assert agop.plot.overlay(IMAGE, MAP, ax=right.subplots(), title="right") is whole
    assert "right" in texts(right)
    assert not left.axes


@pytest.mark.parametrize(
    ("value", "message"), [(torch.nan, "not finite"), (torch.inf, "not finite"), (0.0, "all zero")]
)
def test_all_zero_and_non_finite_maps_get_a_note(value, message):
    dead = torch.full((6, 9), value)
    alone = agop.plot.overlay(IMAGE, dead)
    assert message in texts(alone)
    assert len(alone.axes) == 1  # no bar without a scale
    beside = agop.plot.compare(IMAGE[None], {"dead": dead[None], "good": MAP[None]})
    assert message in texts(beside)
    without = agop.plot.compare(IMAGE[None], {"good": MAP[None]})
    assert np.array_equal(pixels(beside.axes[2]), pixels(without.axes[1]))
    assert len(agop.plot.compare(IMAGE[None], {"dead": dead[None]}).axes) == 2
    assert message in texts(agop.plot.show(IMAGE[None], dead[None]))


def test_no_global_state_changes():
    plt.close("all")
    plt.figure()
    before, settings = plt.get_fignums(), dict(matplotlib.rcParams)
    figure = agop.plot.compare(IMAGE[None], {"own": MAP[None]}, masks=MASK[None])
    figure._repr_png_()
    agop.plot.overlay(IMAGE, MAP).draw_without_rendering()
    assert plt.get_fignums() == before
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


def test_figures_can_be_saved_and_pickled(tmp_path):
    figure = agop.plot.overlay(IMAGE, MAP, mask=MASK, title="mine")
    for suffix, start in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        figure.savefig(tmp_path / f"figure.{suffix}")
        assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(start)
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == figure._repr_png_()


@pytest.mark.slow
def test_no_backend_is_loaded(tmp_path):
    code = (
        "import sys, numpy as np, agop\n"
        "figure = agop.plot.overlay(np.zeros((4, 4)), np.ones((4, 4)))\n"
        f"figure.savefig({str(tmp_path / 'x.pdf')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    environment = os.environ | {"MPLBACKEND": "qtagg"}
    environment.pop("DISPLAY", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"


def test_missing_matplotlib_raises_with_the_install_command():
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None  # makes the import fail\n"
        "import agop\n"
        "try: agop.plot\n"
        "except agop.AGOPError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "agop.plot needs matplotlib: pip install 'agop[plot]'\n"


@pytest.mark.slow
def test_figures_display_themselves_in_a_notebook(tmp_path):
    setup = "import numpy as np, agop; numbers = np.random.default_rng(0).random((1, 4, 4))"
    cells = ["agop.plot.compare(numbers, {'own': numbers})", "agop.plot.overlay(numbers[0], numbers[0])"]
    cells.append("agop.plot.show(numbers, numbers)")
    for text, size in displayed(tmp_path, setup, *cells):
        assert size is not None
        assert min(size) > 100
        assert text.startswith("<_Figure size ")


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (6, 6), (8, 6)])
def test_show_has_a_column_for_each_of_the_first_six_images(count, columns):
    images, maps = torch.rand(count, 3, 4, 4), torch.rand(count, 4, 4)
    figure = agop.plot.show(images, maps)
    assert len(figure.axes) == 2 * columns + 1
    for column in range(columns):
        axes = figure.axes[column]
        assert axes.get_title() == f"{column + 1} of {count}"
        assert np.array_equal(pixels(axes), drawn(images[column]))


@pytest.mark.parametrize("scale", ["own", "common"])
def test_show_draws_the_maps_below_their_images(scale):
    """On its own scale every map has the brightest colour, on the common scale only the most peaked one."""
    images, maps = np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 4))
    maps[0, 3, 3], maps[1, :2, 2:] = 5, 1e-9
    figure = agop.plot.show(images, maps, title="vanilla", scale=scale)
    expected = maps > 0 if scale == "own" else np.stack([maps[0] > 0, (maps[1] > 0) / 2])
    for axes, values in zip(figure.axes[2:4], expected, strict=True):
        assert np.array_equal(pixels(axes), heat(values.astype(float), 1.0))
    assert [axes.get_ylabel() for axes in figure.axes[::2][:2]] == ["image", "vanilla"]
    assert colour_bar(figure).get_ylim() == (0, 1)


def test_show_names_the_targets():
    images, maps = torch.rand(3, 1, 4, 4), torch.rand(3, 4, 4)
    numbered = agop.plot.show(images, maps, targets=torch.tensor([0, 2, 1]))
    assert [axes.get_title() for axes in numbered.axes[:3]] == ["1 of 3, class 0", "2 of 3, class 2", "3 of 3, class 1"]
    named = agop.plot.show(images, maps, targets=["cat", "dog", "cat"])
    assert named.axes[1].get_title() == "2 of 3, dog"


@pytest.mark.parametrize(
    ("count", "maps", "targets", "message"),
    [
        (0, torch.rand(0, 6, 9), None, "0 images: pass at least one"),
        (2, torch.rand(1, 6, 9), None, "2 images and 1 maps: pass one per image"),
        (2, torch.rand(2, 6, 9), [1], "2 images and 1 targets"),
        (2, torch.rand(2, 9, 6), None, r"map has shape \(9, 6\), its image \(6, 9\)"),
    ],
)
def test_show_rejects_empty_batches_and_maps_that_do_not_fit(count, maps, targets, message):
    with pytest.raises(InputError, match=message):
        agop.plot.show(IMAGE[None].expand(2, -1, -1, -1)[:count], maps, targets=targets)


@pytest.mark.parametrize(
    "image",
    [
        IMAGE.float(), IMAGE.clone().requires_grad_(), (255 * IMAGE).round().to(torch.uint8),
        IMAGE.permute(1, 2, 0).numpy(), (255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy(),
        Image.fromarray((255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy()),
    ],
)  # fmt: skip
def test_bytes_and_values_in_0_to_1_keep_their_scale(image):
    assert np.array_equal(drawn(image), (255 * IMAGE).round().permute(1, 2, 0).numpy())


def test_other_values_are_scaled_from_black_to_white():
    values = 7 * IMAGE - 3
    expected = (values - values.min()) / (values.max() - values.min())
    assert np.array_equal(drawn(values), (255 * expected).round().permute(1, 2, 0).numpy())
    assert np.abs(drawn(values.bfloat16()) - 255 * expected.permute(1, 2, 0).numpy()).max() < 3


def test_grey_images_are_grey():
    for image in (IMAGE[:1], IMAGE[0].numpy(), IMAGE[0, ..., None].numpy()):
        assert np.array_equal(drawn(image), (255 * IMAGE[0, ..., None]).round().expand(-1, -1, 3).numpy())
    assert drawn(torch.rand(5, 6, 9)).shape == (6, 9, 3)
    assert drawn(np.full((2, 2), 40_000, dtype=np.uint16)).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("image", "map", "mask", "message"),
    [
        (IMAGE[0], MAP, None, r"image has shape \(6, 9\): pass one image \(C,H,W\)"),
        (IMAGE[None], MAP, None, r"\(1, 3, 6, 9\).* image\[0\]"),
        (IMAGE.numpy(), MAP, None, r"image has shape \(3, 6, 9\): pass an array \(H,W,3\) or a tensor"),
        ("cat.png", MAP, None, "image is a str"),
        (IMAGE, MAP[:5], None, r"map has shape \(5, 9\), its image \(6, 9\)"),
        (IMAGE, MAP[None], None, r"map has shape \(1, 6, 9\)"),
        (IMAGE, MAP - 0.5, None, "has values down to -0.4"),
        (IMAGE, "vanilla", None, "map is a str"),
        (IMAGE, MAP, MASK.T, r"mask has shape \(9, 6\), its image \(6, 9\)"),
    ],
)
def test_invalid_inputs_raise_with_their_shape(image, map, mask, message):
    with pytest.raises(InputError, match=message):
        agop.plot.overlay(image, map, mask=mask)


def test_maps_with_signs_are_drawn_in_diverging_colours_with_zero_in_the_middle_of_the_bar():
    signed = MAP - 0.5
    figures = [
        agop.plot.overlay(IMAGE, signed, colours="RdBu_r"),
        agop.plot.show(IMAGE[None], signed[None], colours="RdBu_r"),
        agop.plot.compare(IMAGE[None], {"signed": signed[None]}, colours="RdBu_r"),
    ]
    for figure in figures:
        low, high = figure.axes[-1].get_ylim()
        assert low == pytest.approx(-high)
        assert high > 0
