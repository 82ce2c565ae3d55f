"""agop.plot.overlay."""

import numpy as np
import torch
from matplotlib.figure import Figure

import agop
from agop.pictures import heat
from agop.plot.figures import outline
from agop.plot.inputs import picture_of
from tests.drawn_figures import IMAGE, MAP, MASK, pixels, texts


def test_overlay_draws_the_map_over_its_image_with_a_bar_up_to_its_maximum():
    figure = agop.plot.overlay(IMAGE, torch.from_numpy(5 * MAP).requires_grad_(), mask=MASK, title="mine")
    axes, bar = figure.axes
    assert np.array_equal(pixels(axes), heat.overlay(picture_of(IMAGE), 5 * MAP))
    assert len(axes.collections[0].get_segments()) == len(outline(MASK))
    assert bar.get_ylim() == (0, 5 * MAP.max())
    assert bar.get_ylabel() == "map value"
    assert axes.get_title() == "mine"


def test_overlay_draws_into_given_axes():
    whole = Figure()
    left, right = whole.subfigures(1, 2)
    assert agop.plot.overlay(IMAGE, MAP, ax=right.subplots(), title="right") is whole
    assert "right" in texts(right)
    assert not left.axes
