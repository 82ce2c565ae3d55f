"""agop.plot.overlay, and what holds for all figures: notes, colours, no global state, display in a notebook."""

import os
import pickle
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import agop
from agop.pictures import heat
from agop.pictures.colouring import top_value
from agop.plot.figures import outline
from agop.plot.inputs import picture_of
from tests.drawn_figures import IMAGE, MAP, MASK, colour_bar, pixels, texts
from tests.notebook import displayed


@pytest.mark.parametrize("percentile", [60, 100])
def test_overlay_draws_the_map_over_its_image_with_a_bar_up_to_its_top_value(percentile):
    values = torch.from_numpy(5 * MAP).requires_grad_()
    figure = agop.plot.overlay(IMAGE, values, mask=MASK, title="mine", percentile=percentile, opacity=0.7)
    axes, bar = figure.axes
    top = top_value(5 * MAP, percentile)
    assert (top < 5 * MAP.max()) == (percentile < 100)
    assert np.array_equal(pixels(axes), heat.overlay(picture_of(IMAGE), 5 * MAP, top, 0.7))
    assert len(axes.collections[0].get_segments()) == len(outline(MASK))
    assert bar.get_ylim() == (0, top)
    assert bar._colorbar.extend == ("max" if percentile < 100 else "neither")
    assert bar.get_ylabel() == "map value"
    assert axes.get_title() == "mine"


def test_overlay_on_the_common_scale_shows_shares():
    figure = agop.plot.overlay(IMAGE, MAP, scale="common", percentile=100)
    assert np.array_equal(pixels(figure.axes[0]), heat.overlay(picture_of(IMAGE), np.sqrt(MAP)))
    assert colour_bar(figure).get_ylim() == pytest.approx((0, MAP.max() / MAP.sum()))
    assert colour_bar(figure).get_ylabel() == "share of the map"


def test_overlay_draws_into_given_axes():
    whole = Figure()
    left, right = whole.subfigures(1, 2)
    assert agop.plot.overlay(IMAGE, MAP, ax=right.subplots(), title="right") is whole
    assert "right" in texts(right)
    assert not left.axes


def test_colour_bar_has_the_colours_of_the_maps():
    bar = colour_bar(agop.plot.overlay(IMAGE, MAP))
    colours = bar._colorbar.mappable.to_rgba([0, MAP.max() / 2, MAP.max()], bytes=True)[:, :3]
    expected = heat.heat(np.array([[0, 0.5, 1.0]]))[0]
    assert np.abs(colours.astype(int) - expected).max() <= 3


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
        "try: agop.plot.overlay\n"
        "except agop.AGOPError as error: print(error)\n"
        "print(dir(agop.plot))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    error, names = done.stdout.splitlines()
    assert error == "agop.plot needs matplotlib: pip install 'agop[plot]'"
    assert names == "['compare', 'convergence', 'eigenimages', 'filters', 'overlay', 'show']"


@pytest.mark.slow
def test_figures_display_themselves_in_a_notebook(tmp_path):
    setup = "import numpy as np, agop; numbers = np.random.default_rng(0).random((1, 4, 4))"
    cells = ["agop.plot.compare(numbers, {'own': numbers})", "agop.plot.overlay(numbers[0], numbers[0])"]
    cells.append("agop.plot.show(numbers, numbers)")
    for text, size in displayed(tmp_path, setup, *cells):
        assert size is not None
        assert min(size) > 100
        assert text.startswith("<ShownFigure size ")
