"""Models that end in a softmax, and passes under autocast."""

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning
from agop.model.probe import input_gradients, probing
from tests import zoo


class Ending(nn.Module):
    """A network with a function after its logits."""

    def __init__(self, net, end):
        super().__init__()
        self.net, self.end = net, end

    def forward(self, images):
        return self.end(self.net(images))


def network():
    return zoo.build("plain").eval()


@pytest.mark.parametrize("end", [nn.Softmax(dim=1), nn.Softmax(dim=-1), nn.LogSoftmax(dim=1)], ids=str)
def test_final_softmax_module_is_bypassed(end):
    net, images = network(), zoo.images(5)
    model = Ending(net, end)
    expected, actual = input_gradients(net, images), input_gradients(model, images)
    assert torch.equal(actual.logits, expected.logits)
    assert torch.equal(actual.values, expected.values)
    assert torch.equal(model(images), end(net(images)))  # the module works again afterwards
    loader = [(images, torch.zeros(5, dtype=torch.long))]
    fits = [agop.fit(m, loader, only_correct=False, progress=False) for m in (net, model)]
    assert torch.equal(fits[0].diagonal, fits[1].diagonal)


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_every_method_explains_the_logits_before_a_softmax_module():
    net, images = zoo.batch_normed().eval(), zoo.images(3)
    model = nn.Sequential(net, nn.Softmax(dim=1))
    prior = agop.fit(net, [images], only_correct=False, progress=False)
    for name in ("integrated-gradients", "gradcam", "agop-weighted"):
        expected, actual = (agop.explain(m, images, name, replace_model(prior, m)) for m in (net, model))
        torch.testing.assert_close(actual, expected)


def replace_model(prior, model):
    """The prior without the fingerprint of its model, which would warn."""
    return agop.AGOP(prior.diagonal, prior.count)


def test_softmax_module_that_is_called_twice_is_kept():
    """Attention and output share one module: bypassing it would change the network."""
    softmax = nn.Softmax(dim=1)
    net = network()
    model = Ending(net, lambda logits: softmax(softmax(logits) * logits))
    model.softmax = softmax
    with pytest.warns(AGOPWarning, match="returns probabilities"):
        gradients = input_gradients(model, zoo.images(2))
    assert torch.allclose(gradients.logits, model(zoo.images(2)).log(), atol=1e-6)


@pytest.mark.parametrize(
    ("end", "word"),
    [(lambda z: z.softmax(1), "returns probabilities"), (lambda z: z.log_softmax(1), "returns log-probabilities")],
    ids=["softmax", "log_softmax"],
)
def test_functional_softmax_gives_log_probabilities_and_a_warning(end, word):
    net, images = network(), zoo.images(4)
    with pytest.warns(AGOPWarning, match=word) as warnings:
        gradients = input_gradients(Ending(net, end), images)
    assert "return the logits" in str(warnings[0].message)
    torch.testing.assert_close(gradients.logits, net(images).log_softmax(1))
    torch.testing.assert_close(gradients.logits.softmax(1), net(images).softmax(1))


def one_logit():
    """A model with one logit, of both signs on these images."""
    images = zoo.images(6)
    net = nn.Sequential(network(), nn.Linear(3, 1))
    with torch.no_grad():
        net[1].bias -= net(images).mean()
    return net, images


def test_final_sigmoid_of_a_one_logit_model_is_bypassed():
    net, images = one_logit()
    expected, actual = input_gradients(net, images), input_gradients(nn.Sequential(net, nn.Sigmoid()), images)
    assert torch.equal(actual.logits, expected.logits)
    assert torch.equal(actual.targets, expected.targets)
    assert torch.equal(actual.values, expected.values)


@pytest.mark.parametrize("end", [torch.sigmoid, lambda z: z.sigmoid()[:, 0]], ids=["column", "flat"])
def test_functional_sigmoid_gives_the_logit_and_a_warning(end):
    net, images = one_logit()
    with pytest.warns(AGOPWarning, match=r"returns the probability of class 1.*return the logit"):
        actual = input_gradients(Ending(net, end), images)
    expected = input_gradients(net, images)
    assert expected.targets.unique().tolist() == [0, 1]
    assert torch.equal(actual.targets, expected.targets)
    torch.testing.assert_close(actual.values, expected.values)


class ChannelMeans(nn.Module):
    """Logits (N,K): the means of the first K channels."""

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, images):
        return images[:, : self.classes].mean((2, 3))


@pytest.mark.parametrize("classes", [1, 3])
def test_logits_that_look_like_probabilities_for_one_batch_stay_logits(classes):
    """Otherwise the batches of a training would be read in two ways."""
    model, batch = ChannelMeans(classes), torch.zeros(2, 3, 4, 4)
    batch[:, 0], batch[:, 1] = 0.25, 0.75
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    for images in (batch, -batch, batch + 1):
        hook.step(images)
        assert float(hook.diagonal.sum()) == pytest.approx(1 / 16)
    maps = agop.explain(model, torch.cat([batch, -batch]), "vanilla", target=0, batch_size=2)
    assert torch.equal(maps, torch.full((4, 4, 4), 1 / 16))


@pytest.mark.filterwarnings("ignore:the model returns", "ignore:NaN or infinite", "ignore:the map of layer")
@pytest.mark.parametrize("end", [nn.Softmax(dim=1), lambda z: z.softmax(1)], ids=["module", "functional"])
@pytest.mark.parametrize("method", ["vanilla", "gradcam", "integrated-gradients"])
@pytest.mark.parametrize("batch_size", [1, None])
def test_image_with_nan_does_not_turn_probabilities_into_logits(end, method, batch_size):
    model, images = Ending(network(), end), zoo.images(4)
    expected = agop.explain(model, images, method)
    images[0, 0, 0, 0] = torch.nan
    maps = agop.explain(model, images, method, batch_size=batch_size, nan="skip")
    assert maps[0].isnan().all()
    torch.testing.assert_close(maps[1:], expected[1:])


@pytest.mark.filterwarnings("ignore:the model returns", "ignore:the map of layer")
def test_gradcam_of_functional_probabilities_is_that_of_log_probabilities():
    """The pass over noise, which confirms that they are probabilities, must not replace the images' feature maps."""
    net, images = network(), zoo.images(3)
    probabilities, logarithms = (Ending(net, end) for end in (lambda z: z.softmax(1), lambda z: z.log_softmax(1)))
    expected = agop.explain(logarithms, images, "gradcam", layer="net.body.3", target=1)
    assert expected.max() > 0
    for layer in ("net.body.3", None):
        torch.testing.assert_close(agop.explain(probabilities, images, "gradcam", layer=layer, target=1), expected)


def test_logits_are_left_alone():
    net = network()
    with probing(net) as probe:
        assert torch.equal(probe.logits(zoo.images(3)), net(zoo.images(3)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ambient_autocast_changes_nothing(dtype):
    net, images = network(), zoo.images(8)
    loader = [(images, torch.zeros(8, dtype=torch.long))]

    def results():
        hook = agop.AGOPTrainingHook(net, only_correct=False)
        hook.step(images)
        prior = agop.fit(net, loader, only_correct=False, progress=False)
        return hook.finalize().diagonal, prior.diagonal, agop.explain(net, images, "vanilla")

    expected = results()
    with torch.autocast("cpu", dtype):
        actual = results()
        assert torch.is_autocast_enabled("cpu")
    assert all(map(torch.equal, actual, expected))
