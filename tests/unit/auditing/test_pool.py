"""Images of an audit: what can't be used raises with the picture's name, and few images of each class are kept."""

import pytest
import torch
from torch import nn

import agop
from agop.auditing.pool import read_pool
from agop.errors import InputError, ModelError
from tests import shortcuts


def linear(side=shortcuts.SIDE):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(side**2, 3)).eval()


def pool_of(data, labels=None, per_class=40):
    return read_pool(linear(), data, labels, per_class, 0, progress=False)


@pytest.fixture
def drawn():
    return shortcuts.drawn(90, 0.0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_image_with_nan_is_named(drawn, value):
    images, labels = drawn
    images[7, 0, 3, 3] = value
    with pytest.raises(InputError, match="image 7 has NaN or infinite values"):
        pool_of(images, labels)
    paths = [f"{place}.png" for place in range(90)]
    with pytest.raises(InputError, match=r"image 7\.png has NaN"):
        pool_of([{"images": images, "labels": labels, "paths": paths}])


def test_model_with_nan_outputs_raises(drawn):
    model = linear()
    model[1].bias.data[1] = torch.nan
    with pytest.raises(ModelError, match="outputs are NaN or infinite for 45 of 45 images"):
        agop.audit(model, *drawn, progress=False)


@pytest.mark.parametrize(("dtype", "expected"), [
    (torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64),
])  # fmt: skip
def test_images_have_single_precision_at_least(drawn, dtype, expected):
    images, labels = drawn
    assert pool_of(images.to(dtype), labels).images.dtype == expected


def test_per_class_is_the_largest_number_of_images(drawn):
    assert torch.bincount(pool_of(*drawn, per_class=20).labels).tolist() == [20, 20, 20]


def test_number_of_paths_is_checked(drawn):
    images, labels = drawn
    with pytest.raises(InputError, match="2 paths and 90 images: give one path per image"):
        pool_of([{"images": images, "labels": labels, "paths": ["a", "b"]}])


def test_paths_may_be_a_tensor(drawn):
    images, labels = drawn
    pool = pool_of([{"images": images, "labels": labels, "paths": torch.arange(90)}])
    assert len(set(pool.pictures)) == 90


@pytest.mark.parametrize("side", [1, 2, 3])
def test_tiny_images_raise(drawn, side):
    images, labels = drawn
    with pytest.raises(InputError, match=f"images have {side}×{side} pixels: give at least 4×4"):
        agop.audit(linear(side), images[:, :, :side, :side], labels, progress=False)
