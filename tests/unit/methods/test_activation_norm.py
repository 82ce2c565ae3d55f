"""Activation norm: a control that depends on one layer."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import agop
from agop.errors import LayerError
from agop.methods.base import missing_layer
from agop.runs.controls import is_control
from tests import zoo


def test_map_is_the_norm_of_the_first_convolution_averaged_over_its_patches():
    model, images = zoo.build("plain"), zoo.images()
    bias = model.body[0].bias[:, None, None]
    norms = (model.body[0](images) - bias).norm(dim=1, keepdim=True).detach()
    pixels = torch.ones_like(norms)
    sums, counts = (9 * functional.avg_pool2d(values, 3, 1, 1) for values in (norms, pixels))
    torch.testing.assert_close(agop.explain(model, images, "activation-norm"), (sums / counts)[:, 0])
    assert is_control("activation-norm:layer=body.2")


def test_layer_that_is_not_a_convolution_is_upsampled_bilinearly():
    model, images = zoo.build("plain"), zoo.images()
    norms = model.body[:4](images).norm(dim=1, keepdim=True).detach()
    expected = functional.interpolate(norms, (12, 12), mode="bilinear")[:, 0]
    for options in ({"layer": "body.3"}, {"layer": model.body[3]}):
        torch.testing.assert_close(agop.explain(model, images, "activation-norm", **options), expected)
    torch.testing.assert_close(agop.explain(model, images, "activation-norm:layer=body.3"), expected)


def test_weights_of_later_layers_and_the_target_do_not_matter():
    model, images = zoo.build("plain"), zoo.images()
    before = agop.explain(model, images, "activation-norm")
    nn.init.normal_(model.body[6].weight)
    assert torch.equal(agop.explain(model, images, "activation-norm", target=1), before)
    nn.init.normal_(model.body[0].weight)
    assert not torch.allclose(agop.explain(model, images, "activation-norm"), before)


def test_layer_of_other_methods_is_not_its_own():
    assert missing_layer(agop.methods.ActivationNorm(), "layer4") is None
    assert missing_layer(agop.methods.GradCAM(), "layer4") == "layer4"


def test_model_without_a_convolution_raises():
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    with pytest.raises(LayerError, match=r"no convolution: name a layer .*candidates: 0, 1"):
        agop.explain(model, zoo.images(), "activation-norm")
    with pytest.raises(LayerError, match="no layer 'conv9'"):
        agop.explain(zoo.build("plain"), zoo.images(), "activation-norm", layer="conv9")
