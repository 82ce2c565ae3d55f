"""Controls: filters of the image against SciPy, and the activation norm, which depends on one layer."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn
from torch.nn import functional

import agop
from agop.errors import LayerError
from tests import zoo


def test_map_is_the_norm_of_the_first_convolution_averaged_over_its_patches():
    model, images = zoo.build("plain"), zoo.images()
    bias = model.body[0].bias[:, None, None]
    norms = (model.body[0](images) - bias).norm(dim=1, keepdim=True).detach()
    pixels = torch.ones_like(norms)
    sums, counts = (9 * functional.avg_pool2d(values, 3, 1, 1) for values in (norms, pixels))
    torch.testing.assert_close(agop.explain(model, images, "activation-norm"), (sums / counts)[:, 0])


def test_layer_that_is_not_a_convolution_is_upsampled_bilinearly():
    model, images = zoo.build("plain"), zoo.images()
    norms = model.body[:4](images).norm(dim=1, keepdim=True).detach()
    expected = functional.interpolate(norms, (12, 12), mode="bilinear")[:, 0]
    for options in ({"layer": "body.3"}, {"layer": model.body[3]}):
        torch.testing.assert_close(agop.explain(model, images, "activation-norm", **options), expected)
    torch.testing.assert_close(agop.explain(model, images, "activation-norm:layer=body.3"), expected)


def test_model_without_a_convolution_raises():
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    with pytest.raises(LayerError, match=r"no convolution: name a layer .*candidates: 0, 1"):
        agop.explain(model, zoo.images(), "activation-norm")
    with pytest.raises(LayerError, match="no layer 'conv9'"):
        agop.explain(zoo.build("plain"), zoo.images(), "activation-norm", layer="conv9")


SCIPY = {
    "input": np.abs,
    "sobel": lambda image: np.hypot(ndimage.sobel(image, 0), ndimage.sobel(image, 1)),
    "laplace": lambda image: np.abs(ndimage.laplace(image)),
}


@pytest.mark.parametrize("name", SCIPY)
def test_control_equals_scipys_filter_summed_over_channels(name):
    images = zoo.images()
    expected = [sum(SCIPY[name](channel) for channel in image) for image in images.double().numpy()]
    maps = agop.explain(zoo.build("plain"), images, name)
    torch.testing.assert_close(maps.double(), torch.tensor(np.array(expected)), rtol=1e-5, atol=1e-5)
