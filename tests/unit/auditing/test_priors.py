"""The prior of an audit: merged from two halves of the images, and checked before images are read."""

import pytest
import torch
from torch import nn

import agop
from agop.auditing.pool import Half
from agop.auditing.priors import Priors
from agop.errors import PriorError
from tests import shortcuts


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(shortcuts.SIDE**2, classes)).eval()


@pytest.mark.filterwarnings("ignore:the model classified")
def test_constant_gradients_give_a_prior():
    """The AGOPs of both halves of the images are equal, although they share no images."""
    images, _ = shortcuts.drawn(24, 0.0)
    model = linear(1)  # one logit: its gradient is the same for all images
    logits = model(images)[:, 0].detach()
    model[1].bias.data -= logits.sort().values[11:13].mean()
    half = Half(images[logits.argsort()], torch.arange(24) // 12, tuple(map(str, range(24))))
    priors = Priors.of(model, half, None, 8, progress=False)
    first, second = priors.halves
    assert torch.equal(first.diagonal, second.diagonal)
    torch.testing.assert_close(priors.whole.diagonal, first.diagonal.double(), check_dtype=False)
    assert priors.whole.count == first.count + second.count


class Once:
    """A loader that fails if more than one batch is read."""

    def __init__(self, images, labels):
        self.batch = images, labels

    def __iter__(self):
        yield self.batch
        raise AssertionError("the data was read")


@pytest.mark.filterwarnings("ignore:the model classified")
def test_prior_of_fewer_classes_raises_before_images_are_read():
    images, labels = shortcuts.drawn(60, 0.0)
    prior = agop.fit(linear(2), [(images, labels % 2)], only_correct=False, per_class=True, progress=False)
    with pytest.raises(PriorError, match="prior has 2 classes, the model 3: compute one for this model"):
        agop.audit(linear(3), Once(images, labels), prior=prior, progress=False)
