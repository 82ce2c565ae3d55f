from collections import namedtuple

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, LayerError
from agop.model.layers import feature_maps
from agop.model.probe import probing
from agop.networks import CNN8by8, ResNet18
from tests import zoo


def test_layer_may_be_a_name_or_a_module():
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    by_name = agop.explain(model, images, "gradcam++", layer="2")
    assert torch.equal(by_name, agop.explain(model, images, "gradcam++", layer=model[2]))
    assert torch.equal(by_name, agop.explain(model, images, agop.methods.GradCAMPlusPlus(layer="2")))


def test_in_place_activation_after_the_layer_changes_nothing():
    plain, inplace, images = zoo.build("batch norm and dropout"), zoo.build("in-place"), zoo.images()
    for method in ("gradcam", "gradcam++"):
        maps = [agop.explain(model, images, method, layer="0") for model in (plain, inplace)]
        torch.testing.assert_close(*maps)


@pytest.mark.parametrize(("model", "images", "size"), [
    (CNN8by8(), torch.randn(2, 1, 8, 8), "2×2 for 8×8"), (ResNet18(3), torch.randn(2, 3, 64, 64), "2×2 for 64×64"),
])  # fmt: skip
def test_coarse_map_warns_with_its_size(model, images, size):
    with pytest.warns(AGOPWarning, match=size) as caught:
        agop.explain(model, images, "gradcam")
    assert caught[0].filename == __file__
    assert len(caught) == 1


class Keyed(nn.Module):
    def forward(self, x):
        return {"x": x.mean(1)[:, :4, 0]}


class Named(nn.Module):
    def forward(self, x):
        return namedtuple("Output", "first second")(x.mean(1)[:, :4, 0], 1)


class TokensFirst(nn.Module):
    def forward(self, x):
        return x.flatten(2).permute(2, 0, 1)


class Layered(zoo.Wrapped):
    """A model with a layer that has no map, and one that isn't called."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.unused = layer, nn.Conv2d(3, 3, 3)

    def forward(self, x):
        output = self.layer(x)
        output = output["x"] if isinstance(output, dict) else output[0]
        return super().forward(x) + output.mean()


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        (zoo.Wrapped(), "body.7", r"no layer 'body.7'.*did you mean 'body\.\d'.*candidates: body\.0, body\.2"),
        (zoo.Wrapped(), nn.Conv2d(3, 3, 3), r"not part of the model: candidates: body\.0, body\.2"),
        (zoo.Wrapped(), "body.6", "neither maps nor tokens"),
        (nn.Sequential(nn.Flatten(), nn.Linear(432, 3)), None, "no convolution"),
        (Layered(Keyed()), "unused", "wasn't called"),
        (Layered(Keyed()), "layer", "returns a dict, not a map"),
        (Layered(Named()), "layer", r"\(1, 4\) for 1 images"),
        (Layered(TokensFirst()), "layer", r"\(144, 1, 3\) for 1 images"),
    ],
)
def test_layer_without_a_map_raises(model, layer, message):
    with pytest.raises(LayerError, match=message):
        agop.explain(model, zoo.images(), "gradcam", layer=layer)


def test_half_precision_maps_become_float32():
    """The sum over a map easily overflows half precision."""
    with probing(zoo.build("plain").half()) as probe:
        features = feature_maps(probe, zoo.images(), None, "body.0")
    assert features.activations.dtype == features.gradients.dtype == torch.float32
