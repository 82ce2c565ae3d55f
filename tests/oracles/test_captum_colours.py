"""The scale of maps against Captum's visualisation."""

import numpy as np
import pytest
import torch
from captum.attr import visualization
from matplotlib.figure import Figure

import agop


@pytest.mark.parametrize("outliers", [0, 2, 20])
@pytest.mark.parametrize("side", [8, 32, 224])
def test_own_scale_is_captums_normalisation(side, outliers):
    saliency = np.random.default_rng(side).random((side, side)) ** 6
    figure = Figure()
    visualization.visualize_image_attr(
        saliency[..., None], method="heat_map", sign="absolute_value", outlier_perc=outliers,
        plt_fig_axis=(figure, figure.subplots()), use_pyplot=False,
    )  # fmt: skip
    expected = np.asarray(figure.axes[0].images[0].get_array())
    options = {"percentile": 100 - outliers, "colours": "gray"}
    ours = agop.plot.compare(torch.zeros(1, 1, side, side), {"map": torch.tensor(saliency[None])}, **options)
    drawn = np.asarray(ours.axes[1].images[0].get_array())[..., 0] / 255
    assert np.allclose(drawn, expected, rtol=0, atol=0.003)
