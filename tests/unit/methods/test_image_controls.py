"""Controls that filter the image, against SciPy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

import agop
from agop.runs.controls import CONTROLS
from tests import zoo

SCIPY = {
    "x": np.abs,
    "sobel": lambda image: np.hypot(ndimage.sobel(image, 0), ndimage.sobel(image, 1)),
    "laplace": lambda image: np.abs(ndimage.laplace(image)),
}


@pytest.mark.parametrize("name", SCIPY)
def test_control_equals_scipys_filter_summed_over_channels(name):
    images = zoo.images()
    expected = [sum(SCIPY[name](channel) for channel in image) for image in images.double().numpy()]
    maps = agop.explain(zoo.build("plain"), images, name)
    torch.testing.assert_close(maps.double(), torch.tensor(np.array(expected)), rtol=1e-5, atol=1e-5)
    assert name in CONTROLS
