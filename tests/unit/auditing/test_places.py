"""Regions that stand out in a prior, and windows in which images of a class fall into two groups."""

import torch
from torch import nn

from agop.auditing.places import outstanding, region_proposals, scan, squares, strips, windows_in_images
from agop.auditing.pool import Half
from agop.auditing.predictor import Asked, Predictor
from agop.auditing.regions import Box
from agop.model.probe import probing
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


TEXT = Box(6, 3, 9, 14)  # a faint line of text, wider than a square


def with_text(share, seed=0):
    """160 images of two classes in noise. This share of class 1 has the text."""
    random = torch.Generator().manual_seed(seed)
    images = torch.rand(160, 1, 16, 16, generator=random)
    labels = torch.arange(160) % 2
    text = (torch.rand(TEXT.height, TEXT.width, generator=random) > 0.5).float()
    has = (labels == 1) & (torch.rand(160, generator=random) < share)
    region = images[has, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right]
    images[has, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right] = 0.5 * region + 0.5 * text
    return Half(images, labels, tuple(map(str, range(160)))), text


def test_windows_with_a_pattern_that_other_classes_lack_come_first():
    """The model isn't asked: it has no probabilities."""
    half, _ = with_text(0.7)
    (first, *_), shared = windows_in_images(Asked(half, torch.zeros(160, 2)), 1, torch.Generator().manual_seed(0))
    assert first.overlaps(TEXT)
    assert first.width > first.height  # the text is longer than a square
    assert shared == []


def test_windows_with_a_pattern_that_the_whole_class_has():
    half, _ = with_text(1.0)
    _, (first, *_) = windows_in_images(Asked(half, torch.zeros(160, 2)), 1, torch.Generator().manual_seed(0))
    assert first.overlaps(TEXT)
    assert windows_in_images(Asked(half, torch.zeros(160, 2)), 0, torch.Generator().manual_seed(0))[1] != [first]


class ReadsText(nn.Module):
    """P(class 1) rises if the middle half of the text's pixels looks like it."""

    def __init__(self, text):
        super().__init__()
        self.text = text - text.mean()

    def forward(self, images):
        seen = images[:, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right] - 0.5
        logit = (seen * self.text).sum(dim=(1, 2)) - 2
        return torch.stack([-logit, logit], dim=1)


def test_scan_lengthens_the_clearest_squares():
    half, text = with_text(0.5)
    with probing(ReadsText(text)) as probe:
        predictor = Predictor(probe, 64)
        first, *_ = scan(predictor, Asked.of(predictor, half), 1, torch.Generator().manual_seed(0))
    assert first in strips((16, 16))
    assert any(first.contains(square) and square.overlaps(TEXT) for square in squares((16, 16)))
    assert first.overlaps(TEXT)


def test_a_region_is_proposed_once():
    one, other = (box.region((16, 16)) for box in (Box(0, 0, 4, 4), Box(4, 4, 8, 8)))
    proposals = region_proposals(0, {"scan": [one, other], "images": [one.clone()]}, (16, 16), seed=0)
    assert [(each.source, each.area.equal(area)) for each, area in zip(proposals, (one, other), strict=True)] == [
        ("scan", True),
        ("scan", True),
    ]
