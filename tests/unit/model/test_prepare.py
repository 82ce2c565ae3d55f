import pytest
import torch
from torch import nn
from torch.nn import functional

import agop
from agop.errors import AGOPWarning, ModelError
from tests import zoo
from tests.state import assert_same, state_of


def test_copy_is_folded_and_frozen_with_the_same_gradients_and_the_original_is_unchanged():
    model, images = zoo.trained_resnet(), torch.randn(3, 3, 32, 32)
    before = state_of(model)
    prepared = agop.prepare(model)
    assert_same(before, state_of(model))
    ours, theirs = agop.input_gradients(model, images), agop.input_gradients(prepared, images)
    torch.testing.assert_close(theirs.logits, ours.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-3, atol=1e-4 * float(ours.values.abs().max()))
    assert not any(isinstance(module, nn.BatchNorm2d) or module.training for module in prepared.modules())
    assert not any(p.requires_grad or p.grad is not None for p in prepared.parameters())
    assert prepared.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert prepared.layer4[0].conv2.weight.is_contiguous()
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    maps, expected = (agop.explain(m, images, "agop-weighted", prior) for m in (prepared, model))
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))


class Scaled(nn.Conv2d):
    """A convolution of the user's own."""

    def forward(self, x, scale):
        return super().forward(x) * scale


class ManyChannels(nn.Module):
    second_kind = nn.Conv2d

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 256, 3), self.second_kind(256, 4, 3), nn.LazyLinear(2)

    def forward(self, x):
        return self.head(self.second(self.first(x)).flatten(1))


class ByKeyword(ManyChannels):
    def forward(self, x):
        return self.head(self.second(input=self.first(x)).flatten(1))


class ByScale(ManyChannels):
    second_kind = Scaled

    def forward(self, x):
        return self.head(self.second(self.first(x), 0.5).flatten(1))


@pytest.mark.parametrize(("side", "contiguous"), [(10, True), (11, False)])
def test_a_convolution_of_many_channels_gets_a_contiguous_input_if_its_maps_are_small(side, contiguous):
    model, images = ManyChannels(), torch.randn(2, 3, side, side)
    expected = model(images)
    prepared, seen = agop.prepare(model.to(memory_format=torch.channels_last)), []
    prepared.second.register_forward_hook(lambda _, inputs, output: seen.append(output.is_contiguous()))
    torch.testing.assert_close(prepared(images), expected, rtol=1e-4, atol=1e-5)
    assert seen == [contiguous]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", [ByKeyword, ByScale, "scripted"])
def test_a_convolution_of_many_channels_can_be_called_otherwise_or_scripted(kind):
    model, images = ManyChannels() if kind == "scripted" else kind(), torch.randn(2, 3, 8, 8)
    expected, prepared = model(images), agop.prepare(model)
    copy = torch.jit.script(prepared) if kind == "scripted" else prepared
    torch.testing.assert_close(copy(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam_on_the_copy_equals_the_original_except_at_a_folded_convolution_which_warns():
    model, images = zoo.trained_resnet().eval(), torch.randn(2, 3, 32, 32)

    def assert_same_maps(prepared, layer):
        maps, expected = (agop.explain(m, images, "gradcam", target=0, layer=layer) for m in (prepared, model))
        torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-3 * float(expected.max()))

    layer = "layer2.1.conv2"
    for name in (None, "layer2", "layer2.1.bn2"):
        assert_same_maps(agop.prepare(model), name)
    kept = agop.prepare(model, keep=[layer])
    assert_same_maps(kept, layer)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in kept.modules()) == 1
    with pytest.warns(AGOPWarning, match=r"prepare\(model, keep=\['layer2\.1\.conv2'\]\)"):
        agop.explain(agop.prepare(model), images, "gradcam", layer=layer)


class Pair(nn.Module):
    """A convolution and its norm, used by a function of the model and the images."""

    def __init__(self, features):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.other_norm = nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(0.7)
        self.norm.running_var.fill_(4.0)
        self.features = features

    def forward(self, x):
        return self.head(self.features(self, x).tanh().mean((2, 3)))


class ConvolutionOfTwoNames(Pair):
    def forward(self, x):
        self.alias = self.conv
        return super().forward(x)


class NormOfTwoNames(Pair):
    def __init__(self, features):
        super().__init__(features)
        self.alias = self.norm


class HookedNorm(Pair):
    def __init__(self, features):
        super().__init__(features)
        self.norm.register_full_backward_hook(lambda _module, inputs, _outputs: (inputs[0] * 3,))


def plain(net, x):
    return net.norm(net.conv(x))


def norm_read(net, x):
    return plain(net, x) * net.norm.weight[:, None, None] + net.norm.running_mean[:, None, None]


USES = {
    "convolution of two names": (ConvolutionOfTwoNames, lambda net, x: net.norm(net.alias(x))),
    "convolution with two users": (Pair, lambda net, x: net.norm(seen := net.conv(x)) + seen),
    "convolution called twice": (Pair, lambda net, x: plain(net, x) + net.other_norm(net.conv(-x))),
    "norm of two names": (NormOfTwoNames, lambda net, x: net.alias(plain(net, x))),
    "weight used again": (Pair, lambda net, x: plain(net, x) + functional.conv2d(x, net.conv.weight, padding=1)),
    "forward called": (Pair, lambda net, x: plain(net, x) + net.conv.forward(x)),
    "norm read": (Pair, norm_read),
    "hooked norm": (HookedNorm, plain),
    # view() depends on the memory layout, which channels last would change.
    "view": (Pair, lambda net, x: plain(net, x).view(x.size(0), -1).view_as(x)),
}


@pytest.mark.parametrize("use", USES)
def test_unusual_uses_of_a_convolution_or_norm_give_the_same_gradients(use):
    kind, features = USES[use]
    model, images = kind(features).eval(), zoo.images()
    expected = agop.input_gradients(model, images)
    gradients = agop.input_gradients(agop.prepare(model), images)
    torch.testing.assert_close(gradients.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients.values, expected.values, rtol=1e-4, atol=1e-6)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    torch.testing.assert_close(prior.diagonal, expected.values.double().square().mean(0), rtol=1e-3, atol=1e-9)


class Uncopyable(Pair):
    def __deepcopy__(self, memo):
        raise TypeError("not me")


def test_model_that_cannot_be_traced_warns_and_one_that_cannot_be_copied_raises():
    model, images = Pair(lambda net, x: plain(net, x if x.sum() > 0 else -x)).eval(), zoo.images()
    with pytest.warns(AGOPWarning, match="can't be traced"):
        prepared = agop.prepare(model)
    torch.testing.assert_close(prepared(images), model(images))
    with pytest.raises(ModelError, match="can't be copied"):
        agop.prepare(Uncopyable(plain))
    assert agop.fit(Uncopyable(plain), [images], only_correct=False, progress=False).count == 5


def test_bfloat16_is_not_folded():
    """Folded weights would be rounded to bfloat16, which would change the logits."""
    prepared = agop.prepare(zoo.build("batch norm and dropout").bfloat16())
    assert any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())
