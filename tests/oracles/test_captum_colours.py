"""The scale of maps against Captum's visualisation."""

import numpy as np
import pytest
from captum.attr import visualization
from matplotlib.figure import Figure

from agop.pictures.colouring import Colouring


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
    strengths, _ = Colouring(percentile=100 - outliers).strengths({"map": saliency})
    assert np.allclose(strengths["map"], expected, rtol=1e-9, atol=0)
