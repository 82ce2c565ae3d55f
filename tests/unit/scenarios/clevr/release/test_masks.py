"""Masks resized for the benchmark, and resized as the release does it."""

import numpy as np
import pytest
import torch

from agop.scenarios.clevr.release.masks import as_released, resized
from tests.clevr import pillow_at_128


@pytest.mark.parametrize(("shape", "size"), [((128, 128), 64), ((32, 48), 128), ((320, 480), 64), ((9, 9), 9)])
def test_resized_equals_torch_bilinear_above_zero(shape, size):
    masks = np.random.default_rng(0).random((2, 3, *shape)) < 0.05
    floats = torch.from_numpy(masks).float()
    expected = torch.nn.functional.interpolate(floats, (size, size), mode="bilinear", align_corners=False) > 0
    smaller = resized(masks, size)
    assert smaller.dtype == bool
    assert np.array_equal(smaller, expected.numpy())
    assert np.array_equal(resized(masks[1, 2], size), smaller[1, 2])


def test_as_released_equals_the_benchmarks_own_code():
    masks = np.random.default_rng(0).random((3, 320, 480)) < 0.001
    for mask in masks:
        assert np.array_equal(as_released(mask), pillow_at_128(mask))
    assert as_released(masks[0]).sum() > resized(masks[0], 128).sum()
