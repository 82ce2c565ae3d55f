"""Regions that stand out in a prior."""

import torch

from agop.auditing.places import outstanding
from agop.auditing.pool import Half
from agop.statistic.agop import AGOP


def prior(seed, empty):
    """Random diagonals of three classes, and of classes without images, which have NaN."""
    diagonals = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5
    diagonals = torch.cat([diagonals, torch.full((empty, 1, 12, 12), torch.nan, dtype=torch.float64)])
    counts = torch.tensor([10] * 3 + [0] * empty)
    return AGOP(diagonals[:3].mean(dim=0), 30, diagonals, counts)


def test_classes_without_images_do_not_lower_the_noise():
    images = torch.rand(8, 1, 12, 12, generator=torch.Generator().manual_seed(9))
    half = Half(images, torch.arange(8) % 3, tuple(map(str, range(8))))
    few, many = (outstanding(prior(0, empty), (prior(1, empty), prior(2, empty)), half)[:3] for empty in (0, 20))
    torch.testing.assert_close(few, many)
