"""SRG: insertion minus deletion with other images as the fill."""

import pytest
import torch

from agop import metrics
from agop.errors import InputError
from tests import zoo


@pytest.fixture(scope="module")
def batch():
    return zoo.build("plain"), zoo.images(), torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(0))


def test_with_a_constant_reference_it_is_insertion_minus_deletion_with_that_fill(batch):
    model, images, maps = batch
    references = torch.full((4, *images.shape[1:]), 0.3)
    parts = [metric(model, images, maps, steps=8, fill=0.3) for metric in (metrics.insertion, metrics.deletion)]
    torch.testing.assert_close(metrics.srg(model, images, maps, references=references), parts[0] - parts[1])
    assert torch.equal(metrics.srg(model, images, maps, fill=0.3), parts[0] - parts[1])


def test_the_fill_is_the_references_pixel_at_the_same_place(batch):
    """A reference that equals the image changes nothing: deletion and insertion are both constant."""
    model, images, maps = batch
    scores = metrics.srg(model, images[:1], maps[:1], references=images[:1])
    torch.testing.assert_close(scores, torch.zeros(1, dtype=torch.float64), atol=1e-6, rtol=0)


def test_draws_depend_on_the_seed_alone(batch):
    model, images, maps = batch
    references = torch.randn(50, *images.shape[1:], generator=torch.Generator().manual_seed(1))
    for options in ({}, {"references": references}):
        first, again, other = (metrics.srg(model, images, maps, seed=seed, **options) for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_the_right_order_of_pixels_scores_higher_than_the_reverse():
    class Corner(torch.nn.Module):
        """Class 1 if the first pixel is bright."""

        def forward(self, x):
            bright = 10 * x[:, 0, 0, 0]
            return torch.stack([-bright, bright], dim=1)

    images, maps = torch.zeros(2, 1, 4, 4), torch.zeros(2, 4, 4)
    images[:, :, 0, 0], maps[:, 0, 0] = 1.0, 1.0
    assert (metrics.srg(Corner(), images, maps) > 0.4).all()
    assert (metrics.srg(Corner(), images, 1 - maps) < -0.4).all()


@pytest.mark.parametrize("shape", [(0, 3, 12, 12), (4, 3, 8, 8), (4, 1, 12, 12)])
def test_unsuitable_references_raise(batch, shape):
    with pytest.raises(InputError, match="references have shape"):
        metrics.srg(*batch, references=torch.zeros(shape))
