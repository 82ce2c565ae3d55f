import copy

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, ModelError
from agop.model.probe import input_gradients
from tests import zoo
from tests.state import assert_same, state_of


def test_copy_gives_the_same_logits_and_gradients_and_the_original_is_unchanged():
    model, images = zoo.trained_resnet(), torch.randn(3, 3, 32, 32)
    before = state_of(model)
    prepared = agop.prepare(model)
    assert_same(before, state_of(model))
    ours, theirs = input_gradients(model, images), input_gradients(prepared, images)
    torch.testing.assert_close(theirs.logits, ours.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-3, atol=1e-4 * float(ours.values.abs().max()))


def test_all_batch_norms_of_a_resnet_are_folded_and_all_parameters_frozen():
    prepared = agop.prepare(zoo.trained_resnet())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())
    assert not any(p.requires_grad or p.grad is not None for p in prepared.parameters())
    assert not any(module.training for module in prepared.modules())
    assert prepared.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)


class Shared(nn.Module):
    """A convolution whose output has two users, and one that is called twice."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Conv2d(3, 3, 3, padding=1)
        self.twice = nn.Conv2d(3, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(3))
        self.head = nn.Linear(3, 2)
        for norm in self.norms:
            norm.running_mean.fill_(0.7)
            norm.running_var.fill_(2.0)

    def forward(self, x):
        seen = self.seen(x)
        x = self.norms[0](seen) + seen
        x = self.norms[1](self.twice(x)) + self.norms[2](self.twice(-x))
        return self.head(x.mean((2, 3)))


def test_shared_convolutions_are_not_folded():
    model, images = Shared().eval(), zoo.images()
    prepared = agop.prepare(model)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in prepared.modules()) == 3
    torch.testing.assert_close(prepared(images), model(images))


class Pair(nn.Module):
    """A convolution and its norm. Subclasses use them in a second way."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.norm.running_mean.fill_(0.7)
        self.norm.running_var.fill_(4.0)

    def forward(self, x):
        return self.head(self.features(x).tanh().mean((2, 3)))


class ConvolutionOfTwoNames(Pair):
    def features(self, x):
        self.alias = self.conv
        return self.norm(self.alias(x))


class NormOfTwoNames(Pair):
    def __init__(self):
        super().__init__()
        self.alias = self.norm

    def features(self, x):
        return self.alias(self.norm(self.conv(x)))


class WeightUsedAgain(Pair):
    def features(self, x):
        return self.norm(self.conv(x)) + nn.functional.conv2d(x, self.conv.weight, padding=1)


class ForwardCalled(Pair):
    def features(self, x):
        return self.norm(self.conv(x)) + self.conv.forward(x)


class NormRead(Pair):
    def features(self, x):
        return self.norm(self.conv(x)) * self.norm.weight[:, None, None] + self.norm.running_mean[:, None, None]


class HookedNorm(Pair):
    def __init__(self):
        super().__init__()
        self.norm.register_full_backward_hook(lambda _module, inputs, _outputs: (inputs[0] * 3,))

    def features(self, x):
        return self.norm(self.conv(x))


class Viewed(Pair):
    """view() depends on the memory layout, which channels last would change."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 144, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).view(x.size(0), -1))


KINDS = [ConvolutionOfTwoNames, NormOfTwoNames, WeightUsedAgain, ForwardCalled, NormRead, HookedNorm, Viewed]


@pytest.mark.parametrize("kind", KINDS)
def test_unusual_uses_of_a_convolution_or_norm_give_the_same_gradients(kind):
    model, images = kind().eval(), zoo.images()
    expected = input_gradients(model, images)
    gradients = input_gradients(agop.prepare(model), images)
    torch.testing.assert_close(gradients.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients.values, expected.values, rtol=1e-4, atol=1e-6)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    torch.testing.assert_close(prior.diagonal, expected.values.double().square().mean(0), rtol=1e-3, atol=1e-9)


def test_model_that_cannot_be_copied_raises():
    class Alone(zoo.Wrapped):
        def __deepcopy__(self, memo):
            raise TypeError("not me")

    with pytest.raises(ModelError, match="can't be copied"):
        agop.prepare(Alone())


def test_model_that_cannot_be_traced_warns():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = zoo.batch_normed()

        def forward(self, x):
            return self.body(x) if x.sum() > 0 else self.body(-x)

    model = Branches().eval()
    with pytest.warns(AGOPWarning, match="can't be traced"):
        prepared = agop.prepare(model)
    torch.testing.assert_close(prepared(zoo.images()), model(zoo.images()))


def test_bfloat16_is_not_folded():
    """Folded weights would be rounded to bfloat16, which would change the logits."""
    model = copy.deepcopy(zoo.build("batch norm and dropout")).bfloat16()
    prepared = agop.prepare(model)
    assert any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())


def test_prior_of_the_original_works_with_the_copy():
    model, images = zoo.trained_resnet(), torch.randn(3, 3, 32, 32)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    maps = agop.explain(agop.prepare(model), images, "agop-weighted", prior)
    expected = agop.explain(model, images, "agop-weighted", prior)
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))
