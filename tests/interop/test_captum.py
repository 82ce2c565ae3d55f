"""Captum, both ways: our attributions in its hands, and its attributions in ours, against Captum called directly."""

import json
import subprocess
import sys
import warnings
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from captum import attr
from captum import metrics as their_metrics
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import agop
from agop.errors import AGOPWarning, InputError, LayerError, ModelError, PriorError, UnknownNameError
from agop.interop.captum import AGOPGlobal, AGOPLocal, AGOPWeighted, Captum
from agop.networks import CNN8by8
from agop.report.formats import registry
from agop.report.run import Run
from tests import zoo
from tests.command import run
from tests.state import assert_same, state_of

OURS = {"agop-weighted": AGOPWeighted, "agop-global": AGOPGlobal, "agop-local": lambda model, _: AGOPLocal(model)}


@pytest.fixture(autouse=True)
def _coarse_maps_are_fine():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the map of layer")
        yield


def prior(shape=(3, 12, 12)) -> agop.AGOP:
    return agop.AGOP(torch.rand(shape, generator=torch.Generator().manual_seed(3)).double(), 7)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def reduced(attribution):
    return attribution.detach().abs().sum(1).float()


# Ours as theirs


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "object", "one logit", "attention"])
@pytest.mark.parametrize("method", OURS)
def test_reduced_over_channels_it_is_our_method(method, kind):
    model, images, statistic = zoo.build(kind), zoo.images(), prior()
    attribution = OURS[method](model, statistic).attribute(images)
    assert attribution.shape == images.shape
    expected = agop.explain(model, images, method, statistic)
    torch.testing.assert_close(attribution.abs().sum(1), expected, rtol=1e-6, atol=1e-6 * float(expected.max()))


@pytest.mark.parametrize("method", OURS)
def test_with_one_channel_bit_for_bit(method):
    torch.manual_seed(0)
    model, images, statistic = CNN8by8(), torch.randn(9, 1, 8, 8), prior((1, 8, 8))
    found = OURS[method](model, statistic).attribute(images, target=1).abs()[:, 0]
    assert torch.equal(found, agop.explain(model, images, method, statistic, target=1))


def test_the_sign_is_the_gradient_s():
    model, images, statistic = zoo.build("plain").eval(), zoo.images(), prior()
    gradient = attr.Saliency(model).attribute(images.clone().requires_grad_(), target=2, abs=False)
    close(AGOPLocal(model).attribute(images, target=2), gradient)
    close(AGOPWeighted(model, statistic).attribute(images, target=2), gradient * statistic.weights.float())
    assert (gradient < 0).any()


@pytest.mark.parametrize("method", OURS)
def test_it_is_a_gradient_attribution_of_captum_s(method):
    attribution = OURS[method](zoo.build("plain"), prior())
    assert isinstance(attribution, attr.GradientAttribution)
    assert attribution.multiplies_by_inputs is False
    assert attribution.has_convergence_delta() is False
    assert attribution.get_name().replace(" ", "").startswith("AGOP")


@pytest.mark.parametrize("method", ["agop-weighted", "agop-local"])
def test_targets(method):
    """None is the predicted class, a number is for every image, and a list has one an image."""
    model, images = zoo.build("plain").eval(), zoo.images()
    attribution = OURS[method](model, prior())
    predicted = model(images).argmax(1)
    assert torch.equal(attribution.attribute(images), attribution.attribute(images, target=predicted))
    for target in (1, torch.tensor(1), torch.tensor([1])):
        for_all = attribution.attribute(images, target=target)
        assert (for_all.flatten(1).abs().sum(1) > 0).all()
        each = torch.cat([attribution.attribute(image[None], target=1) for image in images])
        close(for_all, each)
    classes = [0, 2, 1, 0, 2]
    each = torch.cat([attribution.attribute(images[i : i + 1], target=c) for i, c in enumerate(classes)])
    close(attribution.attribute(images, target=classes), each)
    with pytest.raises(InputError, match="out of range"):
        attribution.attribute(images, target=3)


@pytest.mark.parametrize("method", OURS)
def test_it_leaves_model_and_inputs_alone(method):
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = state_of(model)
    with torch.inference_mode():
        OURS[method](model, prior()).attribute(images)
    OURS[method](model, prior()).attribute(images.requires_grad_())
    assert_same(before, state_of(model))
    assert images.requires_grad
    assert images.grad is None


def test_inside_a_noise_tunnel_it_is_the_tunnel_s_gradient_times_the_weights():
    model, images, statistic = zoo.build("plain").eval(), zoo.images(), prior()

    def tunnel(attribution, **more):
        torch.manual_seed(5)
        options = {"nt_type": "smoothgrad", "nt_samples": 6, "stdevs": 0.4, "target": torch.tensor([0, 1, 2, 1, 0])}
        return attr.NoiseTunnel(attribution).attribute(images, **options, **more)

    expected = tunnel(attr.Saliency(model), abs=False) * statistic.weights.float()
    close(tunnel(AGOPWeighted(model, statistic)), expected)
    still = AGOPWeighted(model, statistic).attribute(images, target=[0, 1, 2, 1, 0])
    assert not torch.allclose(expected, still, rtol=0.05)
    close(tunnel(AGOPGlobal(model, statistic)), statistic.diagonal.float().expand_as(images))


def test_captum_s_metrics_say_of_ours_what_they_say_of_the_same_numbers_from_captum():
    model, images = zoo.build("plain").eval(), zoo.images()

    def noise(inputs):
        drawn = torch.randn_like(inputs) * 0.1
        return drawn, inputs - drawn

    def infidelity(attributions):
        torch.manual_seed(1)
        return their_metrics.infidelity(model, noise, images, attributions, target=1, n_perturb_samples=4)

    def sensitivity(attribution, **more):
        torch.manual_seed(1)
        return their_metrics.sensitivity_max(attribution.attribute, images, target=1, n_perturb_samples=4, **more)

    theirs = attr.Saliency(model)
    close(infidelity(AGOPLocal(model).attribute(images, target=1)),
          infidelity(theirs.attribute(images.clone().requires_grad_(), target=1, abs=False)))  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input Tensor")  # Captum's own saliency speaks of it
        close(sensitivity(AGOPLocal(model)), sensitivity(theirs, abs=False))
    assert (sensitivity(AGOPWeighted(model, prior())) > 0).all()
    assert (sensitivity(AGOPGlobal(model, prior())) == 0).all()


class Shifted(nn.Module):
    """A model with a second argument, one row an image."""

    def __init__(self):
        super().__init__()
        self.model = zoo.build("batch norm and dropout")

    def forward(self, images, shift, scale=1.0):
        return self.model(images * scale + shift)


def test_additional_arguments_reach_the_model():
    model, images, shift = Shifted().train(), zoo.images(), torch.arange(5.0).reshape(5, 1, 1, 1) / 3
    before = state_of(model)
    found = AGOPLocal(model).attribute(images, target=1, additional_forward_args=(shift, 0.5))
    assert_same(before, state_of(model))
    close(found, 0.5 * AGOPLocal(model.model).attribute(images * 0.5 + shift, target=1))
    one = AGOPLocal(model).attribute(images, target=1, additional_forward_args=shift)
    close(one, AGOPLocal(model.model).attribute(images + shift, target=1))


def test_a_function_will_do_for_a_model():
    model, images, statistic = zoo.build("batch norm and dropout").eval(), zoo.images(), prior()
    expected = AGOPWeighted(model, statistic).attribute(images, target=1)
    doubled = AGOPWeighted(lambda x: 2 * model(x), statistic).attribute(images, target=1)
    close(doubled, 2 * expected)
    before = state_of(model.train())
    close(AGOPWeighted(model.forward, statistic).attribute(images, target=1), expected)
    assert_same(before, state_of(model))
    with pytest.raises(InputError, match="pass a model, or a function"):
        AGOPLocal("resnet18").attribute(images)


def test_inputs_in_a_tuple_come_back_in_one():
    model, images = zoo.build("plain"), zoo.images()
    (found,) = AGOPLocal(model).attribute((images,), target=0)
    assert torch.equal(found, AGOPLocal(model).attribute(images, target=0))
    with pytest.raises(InputError, match="images are a tuple"):
        AGOPLocal(model).attribute((images, images))


@pytest.mark.parametrize("kind", [AGOPWeighted, AGOPGlobal])
def test_priors_that_do_not_fit(kind):
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


def test_a_model_that_mixes_samples_is_asked_one_by_one():
    model, images = zoo.build("batch norm without running statistics"), zoo.images()
    each = torch.cat([AGOPLocal(model).attribute(image[None], target=1) for image in images])
    close(AGOPLocal(model).attribute(images, target=1), each)


# Theirs as ours

PLAIN = zoo.build("plain").eval()
with torch.no_grad():
    PLAIN.body[-1].weight *= 100  # else the Lasso in Captum's Lime finds nothing
IMAGES = zoo.images(4)
TARGETS = PLAIN(IMAGES).argmax(1)


class WithoutFlatten(nn.Module):
    """The same network in the form that Captum's LRP takes."""

    def __init__(self):
        super().__init__()
        self.before, self.after = PLAIN.body[:5], PLAIN.body[6]

    def forward(self, x):
        return self.after(self.before(x).flatten(1))


def patch_grid():
    places = torch.arange(12) * 8 // 12
    return (places[:, None] * 8 + places).repeat(1, 3, 1, 1)


ZEROS = torch.zeros(2, 3, 12, 12)
LAYER = PLAIN.body[2]
DIRECT = {
    "Saliency": {},
    "InputXGradient": {},
    "IntegratedGradients": {},
    "GuidedBackprop": {},
    "Deconvolution": {},
    "DeepLift": {},
    "DeepLiftShap": {"baselines": ZEROS},
    "Occlusion": {"sliding_window_shapes": (3, 2, 2), "strides": (3, 1, 1)},
    "FeatureAblation": {"feature_mask": patch_grid()},
    "ShapleyValueSampling": {"feature_mask": patch_grid()},
    "GradientShap": {"baselines": ZEROS[:1]},
    "KernelShap": {"feature_mask": patch_grid(), "n_samples": 256, "perturbations_per_eval": 64},
    "Lime": {"feature_mask": patch_grid(), "n_samples": 256, "perturbations_per_eval": 64},
    "LRP": {},
    "GuidedGradCam": {},
}
LAYERS = {
    "InternalInfluence": {},
    "LayerConductance": {},
    "LayerDeepLift": {},
    "LayerDeepLiftShap": {"baselines": ZEROS},
    "LayerFeatureAblation": {},
    "LayerGradCam": {},
    "LayerGradientShap": {"baselines": ZEROS[:1]},
    "LayerGradientXActivation": {},
    "LayerIntegratedGradients": {},
}
SLOW = {"KernelShap", "Lime", "ShapleyValueSampling", "LayerFeatureAblation"}
QUICK = [name for name in {**DIRECT, **LAYERS} if name not in SLOW]


def marked(names):
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


@pytest.fixture
def _captum_may_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def one_by_one(explainer, **options):
    """Captum itself, an image at a time from the same seed."""
    found = []
    for image, target in zip(IMAGES, TARGETS, strict=True):
        torch.manual_seed(0)
        np.random.seed(0)
        attribution = explainer.attribute(image[None].clone().requires_grad_(), target=int(target), **options)
        found.append(attribution[0] if isinstance(attribution, tuple) else attribution)
    return torch.cat(found)


@pytest.mark.usefixtures("_captum_may_warn")
@pytest.mark.parametrize("name", marked(DIRECT))
def test_maps_are_captum_s_attributions_summed_over_channels(name):
    if name in ("KernelShap", "Lime"):
        pytest.importorskip("sklearn", reason="Captum fits these with scikit-learn")
    model = WithoutFlatten() if name == "LRP" else PLAIN
    arguments = (model, LAYER) if name == "GuidedGradCam" else (model,)
    expected = reduced(one_by_one(getattr(attr, name)(*arguments), **DIRECT[name]))
    found = agop.explain(PLAIN, IMAGES, f"captum:{name}")
    assert expected.max() > 0
    close(found, expected)


@pytest.mark.usefixtures("_captum_may_warn")
@pytest.mark.parametrize("name", marked(LAYERS))
def test_a_layer_s_attribution_is_brought_to_the_image_s_size(name):
    direct = one_by_one(getattr(attr, name)(PLAIN, LAYER), **LAYERS[name])
    size = {"size": (12, 12), "mode": "bilinear"}
    expected = functional.interpolate(reduced(direct)[:, None], **size)[:, 0]
    assert expected.max() > 0
    close(agop.explain(PLAIN, IMAGES, f"captum:{name}"), expected)
    close(agop.explain(PLAIN, IMAGES, f"captum:{name}", layer="body.2"), expected)


@pytest.mark.usefixtures("_captum_may_warn")
def test_what_a_layer_gives_and_the_relevance_there():
    size = {"size": (12, 12), "mode": "bilinear"}
    activation = PLAIN.body[:3](IMAGES).abs().sum(1, keepdim=True)
    close(agop.explain(PLAIN, IMAGES, "captum:LayerActivation"), functional.interpolate(activation, **size)[:, 0])
    model = WithoutFlatten()
    relevance = attr.LayerLRP(model, model.before[2]).attribute(IMAGES.clone().requires_grad_(), target=TARGETS)
    relevance = relevance[0] if isinstance(relevance, tuple) else relevance
    expected = functional.interpolate(reduced(relevance)[:, None], **size)[:, 0]
    close(agop.explain(PLAIN, IMAGES, "captum:LayerLRP"), expected)


@pytest.mark.parametrize("name", QUICK)
def test_neither_the_batch_size_nor_the_neighbours_matter(name):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = agop.explain(model, images, f"captum:{name}")
    for size in (1, 3):
        close(agop.explain(model, images, f"captum:{name}", batch_size=size), expected)
    order = torch.tensor([3, 1, 4, 0, 2])
    close(agop.explain(model, images[order], f"captum:{name}"), expected[order])


@pytest.mark.parametrize("name", QUICK)
def test_no_more_than_batch_size_images_are_in_the_model_at_once(name):
    model, rows = zoo.build("plain"), []
    model.body[0].register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    agop.explain(model, zoo.images(10), f"captum:{name}", batch_size=8)
    assert 0 < max(rows) <= 8


@pytest.mark.parametrize("name", [*QUICK, *marked(["KernelShap"])])
def test_it_leaves_the_model_and_the_random_state_alone(name):
    model, images = zoo.build("batch norm and dropout").train(), zoo.images(2)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before, attributes = state_of(model), [set(vars(module)) for module in model.modules()]
    with torch.inference_mode():
        maps = agop.explain(model, images, f"captum:{name}")
    assert_same(before, state_of(model))
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert maps.shape == (2, 12, 12)
    assert maps.dtype == torch.float32
    assert (maps >= 0).all()
    assert images.grad is None
    assert not images.requires_grad


@pytest.mark.parametrize("name", QUICK)
def test_one_target_explains_every_image_of_a_batch(name):
    maps = agop.explain(PLAIN, IMAGES, f"captum:{name}", target=1)
    each = torch.cat([agop.explain(PLAIN, image[None], f"captum:{name}", target=[1]) for image in IMAGES])
    close(maps, each)
    assert (maps.flatten(1).sum(1) > 0).sum() >= (0 if "GradCam" in name else 4)
    with pytest.raises(InputError, match="out of range"):
        agop.explain(PLAIN, IMAGES, f"captum:{name}", target=3)


@pytest.mark.parametrize("kind", [kind for kind in zoo.KINDS if kind not in ("attention", "layer norm")])
@pytest.mark.parametrize("name", ["Saliency", "IntegratedGradients", "DeepLift", "GuidedBackprop", "Occlusion"])
def test_models_of_every_kind(kind, name):
    """Also those whose logits come as an object, as Hugging Face's do."""
    maps = agop.explain(zoo.build(kind), zoo.images(), f"captum:{name}")
    assert maps.isfinite().all()
    assert (maps.flatten(1).sum(1) > 0).all()
    if name == "Saliency":
        close(maps, agop.explain(zoo.build(kind), zoo.images(), "vanilla"))


@pytest.mark.parametrize("kind", ["one logit", "one logit, flat"])
@pytest.mark.parametrize("name", ["Saliency", "DeepLift", "Occlusion"])
def test_one_logit_speaks_for_two_classes(kind, name):
    """Of class 0 as −z, so that the maps are the same, and no class is out of reach."""
    model, images = zoo.build(kind), zoo.images()
    negative, positive = (agop.explain(model, images, f"captum:{name}", target=target) for target in (0, 1))
    close(positive, negative)
    assert (positive.flatten(1).sum(1) > 0).all()


class Functional(nn.Module):
    """CNN8by8's way of writing a network: ReLU as a function, and one pool for all."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(24, 3)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x), inplace=True))
        return self.head(x.flatten(1))


class Modular(nn.Module):
    """The same, with a module for everything."""

    def __init__(self, twin):
        super().__init__()
        self.convolutions = nn.Sequential(
            twin.conv1, nn.ReLU(), nn.MaxPool2d(2), twin.conv2, nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = twin.head

    def forward(self, x):
        return self.head(self.convolutions(x).flatten(1))


@pytest.mark.usefixtures("_captum_may_warn")
@pytest.mark.parametrize("name", ["DeepLift", "GuidedBackprop", "GuidedGradCam", "Deconvolution", "LRP"])
def test_a_network_written_with_functions_is_explained_as_its_twin_of_modules(name):
    """Captum itself refuses the first, or gives its plain gradient under another name."""
    torch.manual_seed(0)
    model, images = Functional().eval(), torch.randn(4, 1, 8, 8)
    targets = model(images).argmax(1)
    arguments = (Modular(model), *([model.conv1] if name == "GuidedGradCam" else []))
    expected = reduced(getattr(attr, name)(*arguments).attribute(images.clone().requires_grad_(), target=targets))
    layer = "conv1" if name == "GuidedGradCam" else None
    assert expected.max() > 0
    close(agop.explain(model, images, f"captum:{name}", layer=layer), expected)
    vanilla = agop.explain(model, images, "vanilla")
    assert not torch.allclose(expected, vanilla, rtol=0.05)


class Clamped(zoo.LayerNormed):
    """A ReLU that Captum cannot know for one."""

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).clamp(min=0).flatten(1))


@pytest.mark.parametrize("name", ["GuidedBackprop", "Deconvolution", "DeepLift"])
def test_a_model_in_which_captum_finds_no_activation_gets_a_warning(name):
    torch.manual_seed(0)
    with pytest.warns(agop.AGOPWarning, match=f"captum:{name} is the plain gradient"):
        agop.explain(Clamped(), zoo.images(), f"captum:{name}")


def test_what_captum_cannot_do_is_said_in_captum_s_words_and_leaves_nothing_behind():
    model, images = zoo.build("attention").train(), zoo.images()
    before = state_of(model)
    with pytest.raises(ModelError, match=r"captum:LRP doesn't work .* Captum's error: TypeError: Module of type"):
        agop.explain(model, images, "captum:LRP")
    with pytest.raises(LayerError, match=r"captum:GuidedGradCam needs maps .* returns \(1, 10, 12\).*gradcam"):
        agop.explain(model, images, "captum:GuidedGradCam")
    with pytest.raises(ModelError, match=r"Captum's error: AssertionError: .*[Ss]tride"):
        agop.explain(model, images, Captum("Occlusion", sliding_window_shapes=(3, 3, 3), strides=(9, 9, 9)))
    assert_same(before, state_of(model))
    (broken := zoo.build("plain")).body[4].register_forward_hook(_raises_when_captum_asks(broken.body[2]))
    before = state_of(broken)
    with pytest.raises(ModelError, match="Captum's error: ValueError: enough"):
        agop.explain(broken, images, "captum:LayerGradCam")
    assert_same(before, state_of(broken))


def _raises_when_captum_asks(layer):
    """A hook that raises in the middle of a forward pass in which Captum's own hook is at work."""

    def hook(*_):
        if any("captum" in function.__module__ for function in layer._forward_hooks.values()):
            raise ValueError("enough")

    return hook


def test_the_seed_decides_what_is_drawn():
    baselines = torch.randn(9, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    first, again, other = (
        agop.explain(PLAIN, IMAGES, Captum("GradientShap", baselines=baselines, stdevs=0.3, seed=seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, rtol=0.01)


@pytest.mark.usefixtures("_captum_may_warn")
def test_options_go_to_captum_s_constructor_and_to_attribute():
    inputs = IMAGES.clone().requires_grad_()
    direct = attr.DeepLift(PLAIN, multiply_by_inputs=False).attribute(inputs, baselines=0.3, target=TARGETS)
    close(agop.explain(PLAIN, IMAGES, Captum("DeepLift", multiply_by_inputs=False, baselines=0.3)), reduced(direct))
    direct = attr.Occlusion(PLAIN).attribute(IMAGES, sliding_window_shapes=(1, 3, 3), target=TARGETS)
    close(agop.explain(PLAIN, IMAGES, Captum("Occlusion", sliding_window_shapes=(1, 3, 3))), reduced(direct))
    halves = torch.zeros(1, 3, 12, 12, dtype=torch.long)
    halves[..., 6:] += 1
    halves[..., 6:, :] += 2
    direct = attr.ShapleyValues(PLAIN).attribute(IMAGES, feature_mask=halves, target=TARGETS)
    close(agop.explain(PLAIN, IMAGES, Captum("ShapleyValues", feature_mask=halves)), reduced(direct))
    coarse = attr.LayerGradCam(PLAIN, PLAIN.body[0]).attribute(inputs, target=TARGETS, relu_attributions=True)
    found = agop.explain(PLAIN, IMAGES, Captum("LayerGradCam", layer="body.0", relu_attributions=True))
    close(found, reduced(coarse))
    close(found, agop.explain(PLAIN, IMAGES, "gradcam", layer="body.0"))


@pytest.mark.parametrize("name", ["Occlusion", "LayerGradCam"])
def test_a_configured_one_is_a_frozen_dataclass(name):
    method = Captum(name)
    assert method.name == f"captum:{name}"
    assert replace(method) == method == agop.methods.get(f"captum:{name}")()
    assert method != Captum(name, seed=1)
    with pytest.raises(FrozenInstanceError):
        method.seed = 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: agop.methods.get("captum:DeepLft"), UnknownNameError, "did you mean 'captum:DeepLift'.*captum:LRP"),
        (lambda: Captum("NoiseTunnel"), UnknownNameError, "NoiseTunnel isn't supported, it wraps another .*smoothgrad"),
        (
            lambda: Captum("NeuronGradient"),
            UnknownNameError,
            "isn't supported, it explains a neuron instead of a class",
        ),
        (
            lambda: Captum("FeaturePermutation"),
            UnknownNameError,
            "the other images of the batch.*use captum:FeatureAblation",
        ),
        (lambda: Captum("LayerFeaturePermutation"), UnknownNameError, "the other images of the batch"),
        (
            lambda: Captum("LLMAttribution"),
            UnknownNameError,
            "captum:LLMAttribution isn't supported, it doesn't attribute im",
        ),
        (lambda: Captum("Foo"), UnknownNameError, "^no method is named 'captum:Foo': known: captum:Deconvolution, "),
        (lambda: agop.methods.get("cpatum:DeepLift"), UnknownNameError, "no method is named 'cpatum:DeepLift'"),
        (lambda: agop.methods.get("quantus:vanilla"), UnknownNameError, "no method is named 'quantus:vanilla'"),
        (lambda: agop.methods.get(":DeepLift"), UnknownNameError, "no method is named ':DeepLift'"),
        (lambda: Captum("Occlusion", stride=2), UnknownNameError, "option of captum:Occlusion.*'strides'"),
        (lambda: Captum("Saliency", target=2), UnknownNameError, "no option of captum:Saliency is named 'target'"),
        (lambda: Captum("DeepLift", layer="body.2"), InputError, "captum:DeepLift doesn't use a layer"),
        (lambda: agop.explain(PLAIN, IMAGES, "captum:DeepLift", layer="body.2"), InputError, "layer= is for"),
        (
            lambda: agop.explain(PLAIN, IMAGES, "captum:ShapleyValues"),
            InputError,
            "pass feature_mask= with few features",
        ),
        (lambda: Captum("IntegratedGradients", baselines=IMAGES), InputError, r"baselines has \d images.*pass one"),
        (lambda: Captum("DeepLift", baselines=(IMAGES,)), InputError, r"baselines has \d images"),
        (lambda: Captum("Lime", feature_mask=IMAGES.long()), InputError, r"feature_mask has \d images"),
    ],
)
def test_what_is_asked_for_wrongly(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_many_baselines_are_a_distribution_for_those_that_want_one():
    for name in ("GradientShap", "DeepLiftShap", "LayerGradientShap", "LayerDeepLiftShap"):
        assert Captum(name, baselines=IMAGES).options["baselines"] is IMAGES
    assert Captum("IntegratedGradients", baselines=IMAGES[:1]).options


class Tokens(nn.Module):
    """Patches of 4×4 pixels as tokens (N,T,D), or as a map with its channels last."""

    def __init__(self, last):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.norm, self.head = nn.Conv2d(3, 6, 4, stride=4), nn.LayerNorm(6), nn.Linear(6, 3)
        self.last = last

    def forward(self, x):
        found = self.patches(x).permute(0, 2, 3, 1)
        found = self.norm(found if self.last else found.flatten(1, 2)).pow(3)
        return self.head(found.mean((1, 2)) if self.last else found.mean(1))


@pytest.mark.parametrize("name", ["LayerGradCam", "GuidedGradCam"])
@pytest.mark.parametrize("last", [True, False])
def test_captum_s_gradcam_is_refused_where_dimension_1_holds_no_channels(name, last):
    model, images = Tokens(last), torch.randn(2, 3, 24, 32)
    with pytest.raises(LayerError, match=rf"captum:{name} .*channels first.*LayerNorm.*gradcam"):
        agop.explain(model, images, f"captum:{name}", layer="norm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it finds no ReLU
        assert agop.explain(model, images, f"captum:{name}", layer="patches").std() > 0
    assert agop.explain(model, images, "captum:LayerActivation", layer="norm").std() > 0


class Registers(nn.Module):
    """Four patches behind five other tokens: nine, a grid of its own if nobody says."""

    num_prefix_tokens = 5

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.norm, self.head = nn.Conv2d(3, 6, 4, stride=4), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        patches = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(torch.cat([torch.ones(len(x), 5, 6), patches], dim=1)).pow(3).mean(1))


def test_register_tokens_are_left_out_and_a_convolution_is_never_turned():
    model, images = Registers().eval(), torch.randn(2, 3, 8, 8)
    tokens = model.norm(model.patches(images).flatten(2).transpose(1, 2))
    expected = reduced(tokens.transpose(1, 2)).reshape(2, 1, 2, 2)
    found = agop.explain(model, images, "captum:LayerActivation", layer="norm")
    close(found, functional.interpolate(expected, (8, 8), mode="bilinear")[:, 0])
    wide = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8, padding=(0, 4)), nn.Flatten(), nn.Linear(640, 2))
    images = torch.randn(1, 3, 64, 32)
    expected = functional.interpolate(reduced(wide[0](images))[:, None], (64, 32), mode="bilinear")[:, 0]
    close(agop.explain(wide, images, "captum:LayerActivation", layer="0"), expected)


def test_a_lime_map_of_zeros_is_told():
    pytest.importorskip("sklearn", reason="Captum fits it with scikit-learn")
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    nn.init.normal_(model[1].weight, std=1e-6)
    with pytest.warns(AGOPWarning, match=r"captum:Lime.*2 of 2 images.*interpretable_model="):
        agop.explain(model, torch.randn(2, 3, 4, 4), Captum("Lime", n_samples=10))


def test_the_core_knows_captum_only_when_asked():
    code = (
        "import sys, torch, agop; from agop.networks import CNN8by8; names = agop.methods.names(); "
        "x = torch.randn(2, 1, 8, 8); agop.explain(CNN8by8(), x, 'vanilla'); print('captum' in sys.modules); "
        "agop.explain(CNN8by8(), x, 'captum:Saliency'); print('captum' in sys.modules, agop.methods.names() == names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_evaluate_scores_it_and_reports_name_it(tmp_path):
    masks = torch.zeros(4, 12, 12, dtype=torch.bool)
    masks[:, 3:6, 3:6] = True
    methods = [
        "vanilla",
        "captum:DeepLift",
        Captum("LayerGradCam"),
        Captum("Occlusion", sliding_window_shapes=(3, 4, 4)),
    ]
    found = agop.evaluate(PLAIN, IMAGES, masks, methods, metrics=["energy", "pointing_game"])
    assert list(found.scores) == ["vanilla", "captum:DeepLift", "captum:LayerGradCam", "captum:Occlusion"]
    maps = agop.explain(PLAIN, IMAGES, "captum:DeepLift")
    torch.testing.assert_close(found.scores["captum:DeepLift"]["energy"], agop.metrics.energy(maps, masks))
    assert "captum:DeepLift " in str(found)
    found.save(tmp_path / "run")
    for form in registry.names():
        assert "captum:DeepLift" in registry.get(form)(Run(tmp_path / "run"))


@pytest.mark.slow
def test_the_command_line_explains_with_it(tmp_path):
    torch.manual_seed(0)
    model = CNN8by8()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    for index in range(2):
        Image.fromarray(np.random.default_rng(index).integers(0, 255, (8, 8), np.uint8)).save(tmp_path / f"{index}.png")
    command = ("explain", "agop.networks:CNN8by8", "0.png", "1.png", "--weights", "w.pt", "--size", "8", "--gray")
    chosen = ("--method", "captum:Occlusion", "--method", "captum:LayerGradCam", "--layer", "conv1")
    done = run(*command, *chosen, "--out", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    maps = load_file(tmp_path / "out" / "maps.safetensors")
    assert set(maps) == {"captum:Occlusion", "captum:LayerGradCam"}
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["methods"]["captum:LayerGradCam"] == {
        "options": {}, "seed": 0, "layer": "conv1",
    }  # fmt: skip
    done = run(*command, "--method", "captum:Oclusion", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'captum:Occlusion'" in done.stderr


@pytest.mark.slow
def test_the_bench_scores_it_and_its_reports_name_it(tmp_path):
    where = ("--scenario", "linear", "--background", "uncorrelated", "--seeds", "1", "--quick", "--out", "run")
    bench = ("bench", "xai-tris", *where, "--metric", "energy", "--jobs", "1")
    done = run(*bench, "--method", "captum:DeepLift", "--method", "vanilla", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "captum:DeepLift" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    energy = {row["method"]: row for row in rows if row["metric"] == "energy"}
    assert list(energy) == ["vanilla", "captum:DeepLift"]
    assert 0 < energy["captum:DeepLift"]["value"] < 1
    assert energy["captum:DeepLift"]["n"] == 100
    for form in registry.names():
        done = run("report", "run", "--format", form, "--out", f"report.{form}", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "captum:DeepLift" in (tmp_path / f"report.{form}").read_text()
    done = run(*bench, "--method", "captum:DeepLft", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'captum:DeepLift'" in done.stderr
