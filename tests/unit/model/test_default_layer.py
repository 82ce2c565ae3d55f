"""GradCAM's default layer."""

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning
from agop.model.layers import layer_name
from agop.networks import CNN8by8, ResNet18
from tests import zoo


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


def test_default_layer_is_the_one_that_gradcam_uses():
    model, images = zoo.trained_resnet(), torch.randn(2, 3, 224, 224)
    maps = agop.explain(model, images, "gradcam")
    assert torch.equal(maps, agop.explain(model, images, "gradcam", layer="layer4"))


def test_vision_transformer_uses_the_last_norm_before_attention():
    """After the last attention, only the class token reaches the output."""
    model, images = zoo.build("attention"), zoo.images()
    with pytest.warns(AGOPWarning, match=r"'block\.norm1' is only 3×3"):
        maps = agop.explain(model, images, "gradcam")
    assert maps.shape == (5, 12, 12)
    assert (maps.flatten(1).max(1).values > 0).any()
