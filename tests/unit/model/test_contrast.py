"""output="contrast": gradients of f_c − logsumexp of the other logits."""

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, InputError
from tests import zoo


class Shifted(nn.Module):
    """A model with one function of the image added to all of its logits."""

    def __init__(self, model, scale=5.0):
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x):
        return self.model(x) + self.scale * x.square().mean(dim=(1, 2, 3))[:, None].sin()


def slow_contrast(model, images, targets):
    """The gradients sample by sample, with torch's own logsumexp."""
    gradients = []
    for image, target in zip(images, targets, strict=True):
        leaf = image[None].clone().requires_grad_()
        logits = model.eval()(leaf)[0]
        others = torch.cat([logits[:target], logits[target + 1 :]])
        gradients.append(torch.autograd.grad(logits[target] - others.logsumexp(0), leaf)[0])
    return torch.cat(gradients)


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
def test_contrast_gradients_are_those_of_the_log_odds(kind):
    model, images = zoo.build(kind), zoo.images()
    targets = torch.tensor([0, 1, 2, 1, 0])
    expected = slow_contrast(model, images, targets)
    values = agop.input_gradients(model, images, targets, output="contrast").values
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(values, agop.input_gradients(model, images, targets).values, rtol=1e-2)


@pytest.mark.parametrize("method", ["vanilla", "integrated-gradients", "smoothgrad"])
def test_adding_one_function_to_all_logits_changes_nothing(method):
    model, images = zoo.build("plain"), zoo.images()
    both = [agop.explain(each, images, method, output="contrast") for each in (model, Shifted(model))]
    torch.testing.assert_close(*both, rtol=1e-3, atol=1e-5)
    plain = [agop.explain(each, images, method) for each in (model, Shifted(model))]
    assert not torch.allclose(*plain, rtol=1e-2)


def test_adding_one_function_to_all_logits_changes_nothing_in_fit_and_hook():
    model, images = zoo.build("plain"), zoo.images(8)
    options = {"only_correct": False, "output": "contrast", "rank": 3}
    for each in (model, Shifted(model)):
        hook = agop.AGOPTrainingHook(each, **options)
        hook.step(images)
        priors = [agop.fit(each, [images], progress=False, **options), hook.finalize()]
        if each is model:
            expected = priors
    for prior, other in zip(priors, expected, strict=True):
        torch.testing.assert_close(prior.diagonal, other.diagonal, rtol=1e-3, atol=1e-9)
        torch.testing.assert_close(prior.patch_matrix, other.patch_matrix, rtol=1e-3, atol=1e-6)
        assert prior.provenance.options["output"] == "contrast"


def test_gradcam_uses_the_contrast():
    model, images = zoo.build("plain"), zoo.images()
    maps = [
        agop.explain(each, images, "gradcam", layer=layer, output="contrast")
        for each, layer in ((model, "body.0"), (Shifted(model), "model.body.0"))
    ]
    torch.testing.assert_close(*maps, rtol=1e-3, atol=1e-6)
    assert not torch.allclose(maps[0], agop.explain(model, images, "gradcam", layer="body.0"), rtol=1e-2)


def test_one_logit_is_its_own_contrast_and_two_logits_give_their_difference():
    one, two, images = zoo.build("one logit"), zoo.Wrapped(classes=2), zoo.images()
    pair = [agop.input_gradients(one, images, output=output).values for output in ("predicted", "contrast")]
    assert torch.equal(*pair)
    targets = torch.tensor([0, 1, 1, 0, 1])
    values = agop.input_gradients(two, images, targets, output="contrast").values
    own, other = (agop.input_gradients(two, images, each).values for each in (targets, 1 - targets))
    torch.testing.assert_close(values, own - other)


def test_logits_of_minus_infinity_take_no_part():
    masked = zoo.Wrapped(lambda logits: torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], dim=1))
    plain = zoo.Wrapped()
    plain.load_state_dict(masked.state_dict())
    both = [agop.input_gradients(model, zoo.images(), output="contrast").values for model in (masked, plain)]
    torch.testing.assert_close(*both)


def test_a_prior_of_another_output_warns_and_an_unknown_output_raises():
    model, images = zoo.build("plain"), zoo.images()
    prior = agop.fit(model, [images], False, progress=False, output="contrast")
    agop.explain(model, images, "agop-weighted", prior, output="contrast")
    with pytest.warns(AGOPWarning, match="output='contrast', the maps are for output='predicted'"):
        agop.explain(model, images, "agop-weighted", prior)
    other = agop.fit(model, [images], False, progress=False)
    with pytest.warns(AGOPWarning, match="pass the same output"):
        agop.explain(model, images, "agop-weighted", other, output="contrast")
    for call in (agop.explain, agop.input_gradients):
        with pytest.raises(InputError, match="output is 'odds': give 'predicted' or 'contrast'"):
            call(model, images, output="odds")
