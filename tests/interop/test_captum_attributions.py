"""agop's methods as Captum attributions: in Captum's NoiseTunnel and metrics, compared with agop's own maps."""

import warnings

import pytest
import torch
from captum import attr
from captum import metrics as captum_metrics
from torch import nn

import agop
from agop.errors import InputError, PriorError
from agop.interop.captum import AGOPGlobal, AGOPLocal, AGOPWeighted
from agop.networks import CNN8by8
from tests import zoo
from tests.interop.agops import assert_close
from tests.state import assert_same, state_of

ATTRIBUTIONS = {
    "agop-weighted": AGOPWeighted, "agop-global": AGOPGlobal, "agop-local": lambda model, _: AGOPLocal(model),
}  # fmt: skip


def prior(shape=(3, 12, 12)) -> agop.AGOP:
    return agop.AGOP(torch.rand(shape, generator=torch.Generator().manual_seed(3)).double(), 7)


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "object", "one logit", "attention"])
@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_sum_over_channels_equals_the_agop_method(method, kind):
    model, images, statistic = zoo.build(kind), zoo.images(), prior()
    attribution = ATTRIBUTIONS[method](model, statistic).attribute(images)
    assert attribution.shape == images.shape
    expected = agop.explain(model, images, method, statistic)
    torch.testing.assert_close(attribution.abs().sum(1), expected, rtol=1e-6, atol=1e-6 * float(expected.max()))


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_captum_attribution_of_one_channel_is_bitwise_equal_to_the_agop_method(method):
    torch.manual_seed(0)
    model, images, statistic = CNN8by8(), torch.randn(9, 1, 8, 8), prior((1, 8, 8))
    attribution = ATTRIBUTIONS[method](model, statistic)
    maps = attribution.attribute(images, target=1).abs()[:, 0]
    assert torch.equal(maps, agop.explain(model, images, method, statistic, target=1))
    assert isinstance(attribution, attr.GradientAttribution)
    assert not attribution.multiplies_by_inputs
    assert not attribution.has_convergence_delta()
    assert attribution.get_name().replace(" ", "").startswith("AGOP")


def test_attribution_has_the_sign_of_the_gradient():
    model, images, statistic = zoo.build("plain").eval(), zoo.images(), prior()
    gradient = attr.Saliency(model).attribute(images.clone().requires_grad_(), target=2, abs=False)
    assert_close(AGOPLocal(model).attribute(images, target=2), gradient)
    assert_close(AGOPWeighted(model, statistic).attribute(images, target=2), gradient * statistic.weights.float())
    assert (gradient < 0).any()


@pytest.mark.parametrize("method", ["agop-weighted", "agop-local"])
def test_target_is_none_for_predicted_or_one_class_or_one_per_image(method):
    model, images = zoo.build("plain").eval(), zoo.images()
    attribution = ATTRIBUTIONS[method](model, prior())
    predicted = model(images).argmax(1)
    assert torch.equal(attribution.attribute(images), attribution.attribute(images, target=predicted))
    for target in (1, torch.tensor(1), torch.tensor([1])):
        for_all = attribution.attribute(images, target=target)
        assert (for_all.flatten(1).abs().sum(1) > 0).all()
        each = torch.cat([attribution.attribute(image[None], target=1) for image in images])
        assert_close(for_all, each)
    classes = [0, 2, 1, 0, 2]
    each = torch.cat([attribution.attribute(images[i : i + 1], target=c) for i, c in enumerate(classes)])
    assert_close(attribution.attribute(images, target=classes), each)
    with pytest.raises(InputError, match="out of range"):
        attribution.attribute(images, target=3)


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_model_and_inputs_are_unchanged(method):
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = state_of(model)
    with torch.inference_mode():
        ATTRIBUTIONS[method](model, prior()).attribute(images)
    ATTRIBUTIONS[method](model, prior()).attribute(images.requires_grad_())
    assert_same(before, state_of(model))
    assert images.requires_grad
    assert images.grad is None


def test_noise_tunnel_gives_its_smoothed_gradient_times_the_weights():
    model, images, statistic = zoo.build("plain").eval(), zoo.images(), prior()

    def tunnel(attribution, **more):
        torch.manual_seed(5)
        options = {"nt_type": "smoothgrad", "nt_samples": 6, "stdevs": 0.4, "target": torch.tensor([0, 1, 2, 1, 0])}
        return attr.NoiseTunnel(attribution).attribute(images, **options, **more)

    expected = tunnel(attr.Saliency(model), abs=False) * statistic.weights.float()
    assert_close(tunnel(AGOPWeighted(model, statistic)), expected)
    without_noise = AGOPWeighted(model, statistic).attribute(images, target=[0, 1, 2, 1, 0])
    assert not torch.allclose(expected, without_noise, rtol=0.05)
    assert_close(tunnel(AGOPGlobal(model, statistic)), statistic.diagonal.float().expand_as(images))


def test_captum_metrics_score_agop_local_like_saliency():
    model, images = zoo.build("plain").eval(), zoo.images()

    def noise(inputs):
        perturbation = torch.randn_like(inputs) * 0.1
        return perturbation, inputs - perturbation

    def infidelity(attributions):
        torch.manual_seed(1)
        return captum_metrics.infidelity(model, noise, images, attributions, target=1, n_perturb_samples=4)

    def sensitivity(attribution, **more):
        torch.manual_seed(1)
        return captum_metrics.sensitivity_max(attribution.attribute, images, target=1, n_perturb_samples=4, **more)

    saliency = attr.Saliency(model)
    assert_close(infidelity(AGOPLocal(model).attribute(images, target=1)),
          infidelity(saliency.attribute(images.clone().requires_grad_(), target=1, abs=False)))  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input Tensor")  # from Captum's Saliency
        assert_close(sensitivity(AGOPLocal(model)), sensitivity(saliency, abs=False))
    assert (sensitivity(AGOPWeighted(model, prior())) > 0).all()
    assert (sensitivity(AGOPGlobal(model, prior())) == 0).all()


class Shifted(nn.Module):
    """A model with a second argument, one row per image."""

    def __init__(self):
        super().__init__()
        self.model = zoo.build("batch norm and dropout")

    def forward(self, images, shift, scale=1.0):
        return self.model(images * scale + shift)


def test_additional_arguments_reach_the_model():
    model, images, shift = Shifted().train(), zoo.images(), torch.arange(5.0).reshape(5, 1, 1, 1) / 3
    before = state_of(model)
    both = AGOPLocal(model).attribute(images, target=1, additional_forward_args=(shift, 0.5))
    assert_same(before, state_of(model))
    assert_close(both, 0.5 * AGOPLocal(model.model).attribute(images * 0.5 + shift, target=1))
    one = AGOPLocal(model).attribute(images, target=1, additional_forward_args=shift)
    assert_close(one, AGOPLocal(model.model).attribute(images + shift, target=1))


def test_forward_func_can_be_a_function():
    model, images, statistic = zoo.build("batch norm and dropout").eval(), zoo.images(), prior()
    expected = AGOPWeighted(model, statistic).attribute(images, target=1)
    doubled = AGOPWeighted(lambda x: 2 * model(x), statistic).attribute(images, target=1)
    assert_close(doubled, 2 * expected)
    before = state_of(model.train())
    assert_close(AGOPWeighted(model.forward, statistic).attribute(images, target=1), expected)
    assert_same(before, state_of(model))
    with pytest.raises(InputError, match="pass a model, or a function"):
        AGOPLocal("resnet18").attribute(images)


def test_tuple_of_inputs_gives_a_tuple():
    model, images = zoo.build("plain"), zoo.images()
    (attribution,) = AGOPLocal(model).attribute((images,), target=0)
    assert torch.equal(attribution, AGOPLocal(model).attribute(images, target=0))
    with pytest.raises(InputError, match="images are a tuple"):
        AGOPLocal(model).attribute((images, images))


@pytest.mark.parametrize("kind", [AGOPWeighted, AGOPGlobal])
def test_prior_that_does_not_fit_raises_or_warns(kind):
    model, images = zoo.build("plain"), zoo.images()
    for forward in (model, model.forward):
        with pytest.raises(PriorError, match=r"images of shape \(3, 9, 9\)"):
            kind(forward, prior((3, 9, 9))).attribute(images)
    with pytest.raises(PriorError, match=r"prior is a Tensor"):
        kind(model, torch.ones(3, 12, 12))
    batches = [(images, model.eval()(images).argmax(1))]
    fitted = agop.fit(model, batches, progress=False)
    with pytest.warns(agop.AGOPWarning, match="other weights"):
        kind(zoo.build("plain", seed=1), fitted).attribute(images)


def test_model_that_mixes_samples_runs_one_image_at_a_time():
    model, images = zoo.build("batch norm without running statistics"), zoo.images()
    each = torch.cat([AGOPLocal(model).attribute(image[None], target=1) for image in images])
    assert_close(AGOPLocal(model).attribute(images, target=1), each)
