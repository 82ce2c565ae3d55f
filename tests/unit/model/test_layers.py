"""Layers: the default one, those that a user names, and grids of tokens."""

from collections import namedtuple

import pytest
import torch
from torch import nn

import agop
from agop.bench import CNN8by8, ResNet18
from agop.errors import AGOPWarning, LayerError
from agop.model.layers import layer_name, token_grid
from tests import zoo

Pair = namedtuple("Pair", "first second")


class Backwards(nn.Module):
    """Its layers are defined in another order than they are executed."""

    def __init__(self):
        super().__init__()
        self.last = nn.Conv2d(4, 4, 3, padding=1)
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.last(self.first(x)).mean((2, 3)))


class WithBranch(nn.Module):
    """A model with branches that its output doesn't depend on."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.beside = nn.Conv2d(4, 4, 3, padding=1)
        self.places = nn.Parameter(torch.randn(1, 9, 4))
        self.norm = nn.LayerNorm(4)
        self.flat = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.conv(x)
        self.beside(x)
        with torch.no_grad():
            self.beside(x)
        y = self.flat(x.flatten(2))
        return self.head(y.mean(2) + self.norm(self.places).mean())


class TwoBranches(nn.Module):
    """A block with a shortcut that is executed after the main branch, as in Hugging Face's ResNet."""

    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4))
        self.shortcut = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return (self.main(x) + self.shortcut(x)).relu()


class SharedActivation(nn.Module):
    """One activation module for the map and for the hidden layer behind it: its last call has no map."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.act(self.hidden(self.act(self.norm(self.conv(x))).mean((2, 3)))))


def classifier(*layers):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def normed(*more):
    return classifier(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), *more)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (normed, "2"),
        (lambda: normed(nn.MaxPool2d(2), nn.Dropout()), "2"),
        (lambda: normed(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1)), "2"),
        (lambda: classifier(TwoBranches()), "0"),
        (lambda: classifier(nn.Sequential(TwoBranches(), nn.Dropout())), "0"),
        (lambda: normed(torch.jit.script(nn.Conv2d(4, 4, 1))), "2"),
        (SharedActivation, "norm"),
        (Backwards, "last"),
        (WithBranch, "conv"),
        (CNN8by8, "conv4"),
        (ResNet18, "layer4"),
    ],
    ids=["norm and activation", "pooling", "map of 1×1", "shortcut", "stage", "scripted", "shared activation",
         "order of execution", "unused branch", "CNN8by8", "ResNet18"],
)  # fmt: skip
def test_default_layer_is_the_last_block_with_a_map_that_the_output_depends_on(build, expected):
    torch.manual_seed(0)
    model, shape = build(), (1, 1, 8, 8) if build is CNN8by8 else (1, 3, 64, 64)
    assert layer_name(model, torch.randn(shape)) == expected


def test_vision_transformer_uses_the_last_norm_before_attention():
    """After the last attention, only the class token reaches the output."""
    model, images = zoo.build("attention"), zoo.images()
    with pytest.warns(AGOPWarning, match=r"'block\.norm1' is only 3×3"):
        maps = agop.explain(model, images, "gradcam")
    assert maps.shape == (5, 12, 12)
    assert (maps.flatten(1).max(1).values > 0).any()


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


class Returns(nn.Module):
    """A layer that returns this function of its input."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


class Layered(zoo.Wrapped):
    """A model with a layer that has no map, and one that isn't called."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.unused = Returns(function), nn.Conv2d(3, 3, 3)

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
        (Layered(lambda x: [x]), "unused", "wasn't called"),
        (Layered(lambda x: {"x": x}), "layer", "returns a dict, not a map"),
        (Layered(lambda x: Pair(x.mean(1)[:, :4, 0], 1)), "layer", r"\(1, 4\) for 1 images"),
        (Layered(lambda x: x.flatten(2).permute(2, 0, 1)), "layer", r"\(144, 1, 3\) for 1 images"),
    ],
)
def test_layer_without_a_map_raises(model, layer, message):
    with pytest.raises(LayerError, match=message):
        agop.explain(model, zoo.images(), "gradcam", layer=layer)


@pytest.mark.parametrize(
    ("tokens", "size", "grid"),
    [(197, (224, 224), (14, 14)), (198, (224, 224), (14, 14)), (196, (224, 224), (14, 14)), (261, (224, 224), (16, 16)),
     (49, (224, 224), (7, 7)), (1 + 8 * 12, (64, 96), (8, 12)), (10, (12, 12), (3, 3))],
)  # fmt: skip
def test_token_grid_follows_the_image_shape(tokens, size, grid):
    assert token_grid(tokens, torch.Size(size)) == grid
    with pytest.raises(LayerError, match="5000 tokens"):
        token_grid(5000, torch.Size((7, 1000)))
