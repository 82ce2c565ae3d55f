"""The convolution that reads the image, and the mean over its patches."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from agop.model.first_layer import first_layer_name, mean_over_patches
from tests import zoo


class LateFirst(nn.Module):
    """Registered last, called first, after a normalisation."""

    def __init__(self):
        super().__init__()
        self.late, self.stem = nn.Conv2d(4, 3, 3), nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, x):
        return self.late(self.stem((x - 0.5) / 2)).mean((2, 3))


class SamePadded(nn.Conv2d):
    """Pads in its forward pass, below and to the right first, as TensorFlow does."""

    def forward(self, x):
        return super().forward(functional.pad(x, (0, 1, 0, 1)))


def test_first_layer_is_the_first_convolution_that_is_called_with_the_image():
    assert first_layer_name(LateFirst(), zoo.images(1)) == "stem"
    assert first_layer_name(zoo.build("plain"), zoo.images(1)) == "body.0"
    assert first_layer_name(zoo.build("attention"), zoo.images(1)) == "patch"
    flat = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    assert first_layer_name(flat, zoo.images(1)) is None
    pooled = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(48, 3))
    assert first_layer_name(pooled, zoo.images(1)) is None


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(1, 2, 3, padding=1),
        nn.Conv2d(1, 2, 2, padding=1),
        nn.Conv2d(1, 2, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
        nn.Conv2d(1, 2, 4, stride=4),
        nn.Conv2d(1, 2, 4, stride=5),  # leaves pixels between the patches
        nn.Conv2d(1, 2, 7, stride=2, padding=3),
        nn.Conv2d(1, 2, 4, padding="same"),
        nn.Conv2d(1, 2, 3, padding="valid"),
        SamePadded(1, 2, 3, stride=2),
    ],
)
def test_mean_over_patches_equals_a_loop_over_pixels(layer):
    """A patch contains the pixels on which its output depends."""
    image = torch.randn(1, 1, 12, 14, generator=torch.Generator().manual_seed(0))
    values = layer(image).detach().norm(dim=1)
    contains = torch.autograd.functional.jacobian(lambda x: layer(x)[0].sum(0), image)[:, :, 0, 0] != 0
    expected = torch.zeros(1, 12, 14)
    for row, column in itertools.product(range(12), range(14)):
        inside = values[0][contains[:, :, row, column]]
        expected[0, row, column] = inside.mean() if len(inside) else 0
    torch.testing.assert_close(mean_over_patches(values, layer, image.shape[-2:]), expected)
