"""Images, maps and masks of any type."""

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.errors import InputError
from agop.plot.inputs import picture_of
from tests.drawn_figures import IMAGE, MAP, MASK


@pytest.mark.parametrize(
    "image",
    [
        IMAGE.float(), IMAGE.clone().requires_grad_(), (255 * IMAGE).round().to(torch.uint8),
        IMAGE.permute(1, 2, 0).numpy(), (255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy(),
        Image.fromarray((255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy()),
    ],
)  # fmt: skip
def test_bytes_and_values_in_0_to_1_keep_their_scale(image):
    assert np.array_equal(picture_of(image), (255 * IMAGE).round().permute(1, 2, 0).numpy())


def test_other_values_are_scaled_from_black_to_white():
    values = 7 * IMAGE - 3
    expected = (values - values.min()) / (values.max() - values.min())
    assert np.array_equal(picture_of(values), (255 * expected).round().permute(1, 2, 0).numpy())
    assert np.abs(picture_of(values.bfloat16()) - 255 * expected.permute(1, 2, 0).numpy()).max() < 3


def test_grey_images_are_grey():
    for image in (IMAGE[:1], IMAGE[0].numpy(), IMAGE[0, ..., None].numpy()):
        assert np.array_equal(picture_of(image), (255 * IMAGE[0, ..., None]).round().expand(-1, -1, 3).numpy())
    assert picture_of(torch.rand(5, 6, 9)).shape == (6, 9, 3)
    assert picture_of(np.full((2, 2), 40_000, dtype=np.uint16)).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("image", "map", "mask", "message"),
    [
        (IMAGE[0], MAP, None, r"image has shape \(6, 9\): pass one image \(C,H,W\)"),
        (IMAGE[None], MAP, None, r"\(1, 3, 6, 9\).* image\[0\]"),
        (IMAGE.numpy(), MAP, None, r"image has shape \(3, 6, 9\): pass an array \(H,W,3\) or a tensor"),
        ("cat.png", MAP, None, "image is a str"),
        (IMAGE, MAP[:5], None, r"map has shape \(5, 9\), its image \(6, 9\)"),
        (IMAGE, MAP[None], None, r"map has shape \(1, 6, 9\)"),
        (IMAGE, MAP - 0.5, None, "has values down to -0.4"),
        (IMAGE, "vanilla", None, "map is a str"),
        (IMAGE, MAP, MASK.T, r"mask has shape \(9, 6\), its image \(6, 9\)"),
    ],
)
def test_invalid_inputs_raise_with_their_shape(image, map, mask, message):
    with pytest.raises(InputError, match=message):
        agop.plot.overlay(image, map, mask=mask)
