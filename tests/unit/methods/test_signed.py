"""Maps with signs, and agop-ixg."""

import pytest
import torch
from torch import nn

import agop
from agop import outputs
from agop.errors import InputError, PriorError
from agop.methods.base import SignedMethod
from tests import zoo

SIGNED = [name for name in agop.methods.names() if issubclass(agop.methods.get(name), SignedMethod)]
REFERENCES = zoo.images(4, seed=2)


@pytest.fixture(scope="module")
def prior():
    return agop.fit(zoo.build("plain"), [zoo.images(9, seed=3)], False, progress=False, rank=4)


def maps(method, prior, images=None, **options):
    images = zoo.images() if images is None else images
    return agop.explain(zoo.build("plain"), images, method, prior, references=REFERENCES, **options)


def test_the_methods_with_signs():
    assert set(SIGNED) == {
        "vanilla", "agop-local", "input-x-gradient", "smoothgrad", "integrated-gradients", "expected-gradients",
        "agop-ixg",
    }  # fmt: skip


@pytest.mark.parametrize("method", [*SIGNED, "captum:IntegratedGradients", "captum:DeepLift", "captum:LayerGradCam"])
@pytest.mark.filterwarnings("ignore:the map of layer")
def test_a_map_with_signs_is_bounded_by_the_one_without_and_equals_it_for_one_channel(method, prior):
    signed, plain = (maps(method, prior, signed=each, target=1) for each in (True, False))
    assert (signed.abs() <= plain * (1 + 1e-5) + 1e-9).all()
    assert (signed < 0).any()
    assert (signed > 0).any()
    if not method.startswith(("captum:Layer", "agop-ixg")):
        torch.manual_seed(0)
        net, gray = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(300, 2)), zoo.images()[:, :1]
        both = [agop.explain(net, gray, method, references=REFERENCES[:, :1], signed=each) for each in (True, False)]
        torch.testing.assert_close(both[0].abs(), both[1])


def test_gradients_keep_their_signs(prior):
    images = zoo.images()
    gradients = agop.input_gradients(zoo.build("plain"), images).values
    for name in ("vanilla", "agop-local"):
        torch.testing.assert_close(maps(name, prior, signed=True), gradients.sum(1))
    torch.testing.assert_close(maps("input-x-gradient", prior, signed=True), (images * gradients).sum(1))
    torch.testing.assert_close(maps("input-x-gradient", prior), (images * gradients).abs().sum(1))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 3, 3, padding=1))

    def forward(self, images):
        return {"out": self.body(images)}


REGION = zoo.images()[:, 0] > 0
NUMBERS = {
    "logit": lambda logits, classes: logits.gather(1, classes),
    "log_odds": lambda logits, classes: torch.logit(logits.double().softmax(1).gather(1, classes)).float(),
    "probability": lambda logits, classes: logits.softmax(1).gather(1, classes),
}


@pytest.mark.parametrize("method", ["integrated-gradients", "captum:IntegratedGradients"])
@pytest.mark.parametrize("output", [*NUMBERS, "region"])
def test_integrated_gradients_are_complete(method, output):
    """The sum of a map with signs is the change of the output from the baseline to the image."""
    images, baseline = zoo.images(), 0.3
    method = f"{method}:steps=400,baseline={baseline}" if "captum" not in method else f"{method}:n_steps=100"
    starts = torch.full_like(images, 0.0 if "captum" in method else baseline)
    if output == "region":
        model, explained = Dense(), outputs.segment(1, REGION)
        ends = [agop.input_gradients(model, x, output=explained).logits[:, 0] for x in (images, starts)]
    else:
        model, explained = zoo.build("plain"), output
        classes = model(images).argmax(1, keepdim=True)
        ends = [NUMBERS[output](model(x), classes)[:, 0].detach() for x in (images, starts)]
    sums = agop.explain(model, images, method, output=explained, signed=True).sum((1, 2))
    change = ends[0] - ends[1]
    torch.testing.assert_close(sums, change, rtol=0, atol=0.02 * float(change.abs().max()))
    assert change.abs().max() > 0.01


def test_expected_gradients_are_complete():
    model, images = zoo.build("plain"), zoo.images()
    method = agop.methods.ExpectedGradients(samples=2000)
    sums = agop.explain(model, images, method, references=REFERENCES[:1], signed=True, target=1).sum((1, 2))
    change = (model(images) - model(REFERENCES[:1]))[:, 1].detach()
    torch.testing.assert_close(sums, change, rtol=0, atol=0.1 * float(change.abs().max()))


@pytest.mark.filterwarnings("ignore:the map of layer")
@pytest.mark.parametrize("method", [name for name in agop.methods.names() if name not in SIGNED])
def test_methods_without_signs_raise(method, prior):
    with pytest.raises(InputError, match=f"{method.replace('+', '.')} has no signs: omit signed=True, or use vanilla"):
        maps(method, prior, signed=True)


def test_factors_have_no_signs(prior):
    with pytest.raises(InputError, match="pass factors=True or signed=True"):
        maps("agop", prior, signed=True, factors=True)


def test_agop_ixg_is_the_image_times_the_sketchs_part_of_the_gradient(prior):
    """As a loop over images, with the matrix M_K written out."""
    images = zoo.images()
    gradients = agop.input_gradients(zoo.build("plain"), images).values.double()
    rows = prior.sketch.flatten(1).double()
    matrix = rows.T @ rows / prior.count
    expected = torch.stack([
        (image.flatten().double() * (matrix @ gradient.flatten())).reshape(image.shape)
        for image, gradient in zip(images, gradients, strict=True)
    ]) / prior.diagonal.max()  # fmt: skip
    torch.testing.assert_close(maps("agop-ixg", prior), expected.abs().sum(1).float(), rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(maps("agop-ixg", prior, signed=True), expected.sum(1).float(), rtol=1e-3, atol=1e-7)


def test_agop_ixg_needs_a_sketch():
    with pytest.raises(PriorError, match="no sketch"):
        maps("agop-ixg", agop.fit(zoo.build("plain"), [zoo.images()], False, progress=False))
