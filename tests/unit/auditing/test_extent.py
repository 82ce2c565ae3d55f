"""The extent of a pattern around its core."""

import torch

from agop.auditing.extent import extent
from agop.auditing.regions import Box


def images(count, seed):
    return torch.rand(count, 2, 20, 20, generator=torch.Generator().manual_seed(seed))


def test_extent_is_that_of_the_pattern_not_of_the_core():
    containing, others = images(30, 0), images(60, 1)
    containing[:, :, 4:9, 10:16] = ((torch.arange(5)[:, None] + torch.arange(6)) % 2).float()
    assert extent(containing, others, Box(5, 11, 7, 13)) == Box(4, 10, 9, 16)
    assert extent(containing, others, Box(2, 9, 7, 13)) == Box(4, 10, 9, 16)


def test_no_extent_without_a_common_pattern():
    assert extent(images(30, 0), images(60, 1), Box(5, 11, 7, 13)) is None


def test_pattern_over_the_whole_image_has_no_extent():
    assert extent(images(30, 0) / 10, 1 - images(60, 1) / 10, Box(5, 11, 7, 13)) is None
