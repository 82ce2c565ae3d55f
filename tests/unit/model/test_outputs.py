"""What gradients are of: logits, also of models that end in a softmax or under autocast, and log-odds."""

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, InputError
from tests import zoo
from tests.zoo import Ending


def network():
    return zoo.build("plain").eval()


def one_logit():
    """A model with one logit, of both signs on these images."""
    images = zoo.images(6)
    net = nn.Sequential(network(), nn.Linear(3, 1))
    with torch.no_grad():
        net[1].bias -= net(images).mean()
    return net, images


ENDS = [nn.Softmax(dim=1), nn.Softmax(dim=-1), nn.LogSoftmax(dim=1), nn.Sigmoid()]


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_final_softmax_module_and_sigmoid_of_one_logit_are_bypassed(end):
    net, images = one_logit() if isinstance(end, nn.Sigmoid) else (network(), zoo.images(6))
    model = Ending(net, end)
    expected, actual = agop.input_gradients(net, images), agop.input_gradients(model, images)
    for name in ("logits", "targets", "values"):
        assert torch.equal(getattr(actual, name), getattr(expected, name))
    assert torch.equal(model(images), end(net(images)))  # the module works again afterwards
    loader = [(images, torch.zeros(6, dtype=torch.long))]
    fits = [agop.fit(m, loader, only_correct=False, progress=False) for m in (net, model)]
    assert torch.equal(fits[0].diagonal, fits[1].diagonal)


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_every_method_explains_the_logits_before_a_softmax_module():
    net, images = zoo.batch_normed().eval(), zoo.images(3)
    model = nn.Sequential(net, nn.Softmax(dim=1))
    prior = agop.fit(net, [images], only_correct=False, progress=False)
    for name in ("integrated-gradients", "gradcam", "agop-weighted"):
        # Without the fingerprint of the model, which would warn.
        expected, actual = (agop.explain(m, images, name, agop.AGOP(prior.diagonal, 3)) for m in (net, model))
        torch.testing.assert_close(actual, expected)


def test_softmax_module_that_is_called_twice_is_kept():
    """Attention and output share one module: bypassing it would change the network."""
    softmax = nn.Softmax(dim=1)
    net = network()
    model = Ending(net, lambda logits: softmax(softmax(logits) * logits))
    model.softmax = softmax
    with pytest.warns(AGOPWarning, match="returns probabilities"):
        gradients = agop.input_gradients(model, zoo.images(2))
    assert torch.allclose(gradients.logits, model(zoo.images(2)).log(), atol=1e-6)


@pytest.mark.parametrize(
    ("end", "word"),
    [(lambda z: z.softmax(1), "returns probabilities"), (lambda z: z.log_softmax(1), "returns log-probabilities")],
    ids=["softmax", "log_softmax"],
)
def test_functional_softmax_gives_log_probabilities_and_a_warning(end, word):
    net, images = network(), zoo.images(4)
    with pytest.warns(AGOPWarning, match=word) as warnings:
        gradients = agop.input_gradients(Ending(net, end), images)
    assert "return the logits" in str(warnings[0].message)
    torch.testing.assert_close(gradients.logits, net(images).log_softmax(1))


@pytest.mark.parametrize("end", [torch.sigmoid, lambda z: z.sigmoid()[:, 0]], ids=["column", "flat"])
def test_functional_sigmoid_gives_the_logit_and_a_warning(end):
    net, images = one_logit()
    with pytest.warns(AGOPWarning, match=r"returns the probability of class 1.*return the logit"):
        actual = agop.input_gradients(Ending(net, end), images)
    expected = agop.input_gradients(net, images)
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


class Shifted(nn.Module):
    """A model with one function of the image added to all of its logits."""

    def __init__(self, model, scale=5.0):
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x):
        return self.model(x) + self.scale * x.square().mean(dim=(1, 2, 3))[:, None].sin()


def slow_log_odds(model, images, targets):
    """The gradients sample by sample, with torch's own logsumexp."""
    gradients = []
    for image, target in zip(images, targets, strict=True):
        leaf = image[None].clone().requires_grad_()
        logits = model.eval()(leaf)[0]
        others = torch.cat([logits[:target], logits[target + 1 :]])
        gradients.append(torch.autograd.grad(logits[target] - others.logsumexp(0), leaf)[0])
    return torch.cat(gradients)


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
def test_log_odds_have_the_gradients_of_the_slow_loop(kind):
    model, images = zoo.build(kind), zoo.images()
    targets = torch.tensor([0, 1, 2, 1, 0])
    expected = slow_log_odds(model, images, targets)
    values = agop.input_gradients(model, images, targets, output="log_odds").values
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(values, agop.input_gradients(model, images, targets).values, rtol=1e-2)


@pytest.mark.parametrize("method", ["vanilla", "integrated-gradients", "smoothgrad", "gradcam"])
def test_adding_one_function_to_all_logits_changes_nothing(method):
    model, images = zoo.build("plain"), zoo.images()
    options = {"layer": model.body[0]} if method == "gradcam" else {}
    both = [agop.explain(each, images, method, output="log_odds", **options) for each in (model, Shifted(model))]
    torch.testing.assert_close(*both, rtol=1e-3, atol=1e-6 if method == "gradcam" else 1e-5)
    plain = [agop.explain(each, images, method, **options) for each in (model, Shifted(model))]
    assert not torch.allclose(both[0], plain[0], rtol=1e-2)
    assert method == "gradcam" or not torch.allclose(*plain, rtol=1e-2)


def test_adding_one_function_to_all_logits_changes_nothing_in_fit_and_hook():
    model, images = zoo.build("plain"), zoo.images(8)
    options = {"only_correct": False, "output": "log_odds", "rank": 3}
    for each in (model, Shifted(model)):
        hook = agop.AGOPTrainingHook(each, **options)
        hook.step(images)
        priors = [agop.fit(each, [images], progress=False, **options), hook.finalize()]
        if each is model:
            expected = priors
    for prior, other in zip(priors, expected, strict=True):
        torch.testing.assert_close(prior.diagonal, other.diagonal, rtol=1e-3, atol=1e-9)
        torch.testing.assert_close(prior.patch_matrix, other.patch_matrix, rtol=1e-3, atol=1e-6)
        assert prior.provenance.options["output"] == "log_odds"


def test_one_logit_is_its_own_log_odds():
    model, images = zoo.build("one logit"), zoo.images()
    assert torch.equal(*(agop.input_gradients(model, images, output=each).values for each in ("logit", "log_odds")))


def test_logits_of_minus_infinity_take_no_part():
    masked = zoo.Wrapped(lambda logits: torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], dim=1))
    plain = zoo.Wrapped()
    plain.load_state_dict(masked.state_dict())
    both = [agop.input_gradients(model, zoo.images(), output="log_odds").values for model in (masked, plain)]
    torch.testing.assert_close(*both)


def test_a_prior_of_another_output_warns_and_an_unknown_output_raises():
    model, images = zoo.build("plain"), zoo.images()
    prior = agop.fit(model, [images], False, progress=False, output="log_odds")
    agop.explain(model, images, "agop-weighted", prior, output="log_odds")
    with pytest.warns(AGOPWarning, match="output='log_odds', the maps are for output='logit'"):
        agop.explain(model, images, "agop-weighted", prior)
    other = agop.fit(model, [images], False, progress=False)
    with pytest.warns(AGOPWarning, match="pass the same output"):
        agop.explain(model, images, "agop-weighted", other, output="log_odds")
    for call in (agop.explain, agop.input_gradients):
        with pytest.raises(InputError, match="no output is named 'odds': did you mean 'log_odds'"):
            call(model, images, output="odds")
