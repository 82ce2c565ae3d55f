import copy

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning
from agop.gradients import input_gradients
from agop.networks import ResNet18
from tests import zoo
from tests.state import assert_same, state_of


def trained_resnet():
    torch.manual_seed(0)
    model = ResNet18(4).train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 32, 32) * 2 + 0.5)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    return model


def test_the_same_logits_and_gradients_and_the_original_untouched():
    model, images = trained_resnet(), torch.randn(3, 3, 32, 32)
    before = state_of(model)
    prepared = agop.prepare(model)
    assert_same(before, state_of(model))
    ours, theirs = input_gradients(model, images), input_gradients(prepared, images)
    torch.testing.assert_close(theirs.logits, ours.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-3, atol=1e-4 * float(ours.values.abs().max()))


def test_every_batch_norm_of_a_resnet_is_folded_and_everything_is_frozen():
    prepared = agop.prepare(trained_resnet())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())
    assert not any(p.requires_grad or p.grad is not None for p in prepared.parameters())
    assert not any(module.training for module in prepared.modules())
    assert prepared.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)


class Shared(nn.Module):
    """A convolution whose output is seen by more than its norm, and one that is called twice."""

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


def test_what_cannot_be_folded_is_left_alone():
    model, images = Shared().eval(), zoo.images()
    prepared = agop.prepare(model)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in prepared.modules()) == 3
    torch.testing.assert_close(prepared(images), model(images))


def test_a_model_that_cannot_be_traced_says_so():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = zoo.batch_normed()

        def forward(self, x):
            return self.body(x) if x.sum() > 0 else self.body(-x)

    model = Branches().eval()
    with pytest.warns(AGOPWarning, match="cannot be traced"):
        prepared = agop.prepare(model)
    torch.testing.assert_close(prepared(zoo.images()), model(zoo.images()))


def test_bfloat16_is_not_folded():
    """Folded weights would be rounded to bfloat16, and the logits would not be the same."""
    model = copy.deepcopy(zoo.made("batch norm and dropout")).bfloat16()
    prepared = agop.prepare(model)
    assert any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())


def test_a_prior_of_the_original_fits_the_prepared_copy():
    model, images = trained_resnet(), torch.randn(3, 3, 32, 32)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    maps = agop.explain(agop.prepare(model), images, "agop-weighted", prior)
    expected = agop.explain(model, images, "agop-weighted", prior)
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))
