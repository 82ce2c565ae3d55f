"""Captum in both directions: agop's methods in Captum, and Captum's attributions as methods, compared with Captum's."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from captum import attr
from captum import metrics as captum_metrics
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import agop
from agop.bench import CNN8by8
from agop.errors import AGOPWarning, InputError, LayerError, ModelError, PriorError, UnknownNameError
from agop.integrations.captum import AGOPGlobal, AGOPLocal, AGOPWeighted, Captum
from tests import zoo
from tests.command import run
from tests.integrations.agops import assert_close
from tests.state import assert_same, state_of

pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")  # these images are small

ATTRIBUTIONS = {
    "agop-weighted": AGOPWeighted, "agop-global": AGOPGlobal, "agop-local": lambda model, _: AGOPLocal(model),
}  # fmt: skip


def prior(shape=(3, 12, 12)) -> agop.AGOP:
    return agop.AGOP(torch.rand(shape, generator=torch.Generator().manual_seed(3)).double(), 7)


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "object", "one logit", "attention"])
@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_sum_over_channels_equals_the_agop_method(method, kind):
    model, images, statistic = zoo.build(kind), zoo.images(), prior()
    attribution = ATTRIBUTIONS[method](model, statistic)
    assert isinstance(attribution, attr.GradientAttribution)
    values, expected = attribution.attribute(images), agop.explain(model, images, method, statistic)
    assert values.shape == images.shape
    torch.testing.assert_close(values.abs().sum(1), expected, rtol=1e-6, atol=1e-6 * float(expected.max()))


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_attribution_of_one_channel_is_bitwise_equal_to_the_agop_method(method):
    torch.manual_seed(0)
    model, images, statistic = CNN8by8(), torch.randn(9, 1, 8, 8), prior((1, 8, 8))
    maps = ATTRIBUTIONS[method](model, statistic).attribute(images, target=1).abs()[:, 0]
    assert torch.equal(maps, agop.explain(model, images, method, statistic, target=1))


@pytest.mark.parametrize("method", ["agop-weighted", "agop-local"])
def test_target_is_none_for_predicted_or_one_class_or_one_per_image(method):
    model, images = zoo.build("plain").eval(), zoo.images()
    attribution = ATTRIBUTIONS[method](model, prior())
    predicted = model(images).argmax(1)
    assert torch.equal(attribution.attribute(images), attribution.attribute(images, target=predicted))
    for target in (1, torch.tensor(1), torch.tensor([1]), [0, 2, 1, 0, 2]):
        classes = target if isinstance(target, list) else [1] * 5
        each = torch.cat([attribution.attribute(images[i : i + 1], target=c) for i, c in enumerate(classes)])
        assert (each.flatten(1).abs().sum(1) > 0).all()
        assert_close(attribution.attribute(images, target=target), each)
    with pytest.raises(InputError, match="out of range"):
        attribution.attribute(images, target=3)


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


@pytest.mark.filterwarnings("ignore:Input Tensor")  # from Captum's Saliency
def test_captum_sensitivity_of_agop_local_is_that_of_saliency():
    model, images = zoo.build("plain").eval(), zoo.images()

    def sensitivity(attribution, **more):
        torch.manual_seed(1)
        return captum_metrics.sensitivity_max(attribution.attribute, images, target=1, n_perturb_samples=4, **more)

    assert_close(sensitivity(AGOPLocal(model)), sensitivity(attr.Saliency(model), abs=False))
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


def reduced(attribution, size=None):
    """Maps (N,H,W): absolute values summed over channels, scaled to `size`."""
    maps = attribution.detach().abs().sum(1).float()
    return maps if size is None else functional.interpolate(maps[:, None], size, mode="bilinear")[:, 0]


PLAIN = zoo.build("plain").eval()
with torch.no_grad():
    PLAIN.body[-1].weight *= 100  # otherwise the Lasso in Captum's Lime sets every weight to 0
IMAGES = zoo.images(4)
TARGETS = PLAIN(IMAGES).argmax(1)


class AroundFlatten(nn.Module):
    """Two parts with a functional flatten between them: Captum's LRP doesn't support nn.Flatten."""

    def __init__(self, before, after):
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x):
        return self.after(self.before(x).flatten(1))


def patch_grid():
    indices = torch.arange(12) * 8 // 12
    return (indices[:, None] * 8 + indices).repeat(1, 3, 1, 1)


ZEROS = torch.zeros(2, 3, 12, 12)
RELU, CONVOLUTION = "body.3", "body.2"  # GradCAM's layer, and the one of LRP, which has no rule for a ReLU
DIRECT = {
    "Saliency": {}, "InputXGradient": {}, "IntegratedGradients": {}, "GuidedBackprop": {}, "Deconvolution": {},
    "DeepLift": {}, "DeepLiftShap": {"baselines": ZEROS}, "GradientShap": {"baselines": ZEROS[:1]}, "LRP": {},
    "Occlusion": {"sliding_window_shapes": (3, 2, 2), "strides": (3, 1, 1)},
    "FeatureAblation": {"feature_mask": patch_grid()},
    "ShapleyValueSampling": {"feature_mask": patch_grid()},
    "KernelShap": {"feature_mask": patch_grid(), "n_samples": 256, "perturbations_per_eval": 64},
    "Lime": {"feature_mask": patch_grid(), "n_samples": 256, "perturbations_per_eval": 64},
}  # fmt: skip
LAYERS = {
    "GuidedGradCam": {}, "InternalInfluence": {}, "LayerConductance": {}, "LayerDeepLift": {},
    "LayerDeepLiftShap": {"baselines": ZEROS}, "LayerFeatureAblation": {}, "LayerGradCam": {},
    "LayerGradientShap": {"baselines": ZEROS[:1]}, "LayerGradientXActivation": {}, "LayerIntegratedGradients": {},
    "LayerLRP": {},
}  # fmt: skip
SLOW = {"KernelShap", "Lime", "ShapleyValueSampling", "LayerFeatureAblation"}
QUICK = [name for name in DIRECT | LAYERS if name not in SLOW]


def marked(names):
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


def one_by_one(explainer, **options):
    """Captum called directly, one image at a time from the same seed."""
    attributions = []
    for image, target in zip(IMAGES, TARGETS, strict=True):
        torch.manual_seed(0)
        np.random.seed(0)
        attribution = explainer.attribute(image[None].clone().requires_grad_(), target=int(target), **options)
        attributions.append(attribution[0] if isinstance(attribution, tuple) else attribution)
    return torch.cat(attributions)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("name", marked(DIRECT | LAYERS))
def test_maps_are_captum_attributions_summed_over_channels_at_the_image_size(name):
    if name in ("KernelShap", "Lime"):
        pytest.importorskip("sklearn", reason="Captum fits these with scikit-learn")
    model = AroundFlatten(PLAIN.body[:5], PLAIN.body[6]) if "LRP" in name else PLAIN
    layer = CONVOLUTION if "LRP" in name else RELU
    explainer = getattr(attr, name)(*((model, PLAIN.get_submodule(layer)) if name in LAYERS else (model,)))
    expected = reduced(one_by_one(explainer, **(DIRECT | LAYERS)[name]), size=(12, 12))
    assert expected.max() > 0
    for option in (None, layer) if name in LAYERS else (None,):
        assert_close(agop.explain(PLAIN, IMAGES, f"captum:{name}", layer=option), expected)


def test_layer_activation_is_scaled_to_the_image_size():
    expected = reduced(PLAIN.body[:4](IMAGES), size=(12, 12))
    assert_close(agop.explain(PLAIN, IMAGES, "captum:LayerActivation"), expected)


@pytest.mark.parametrize("name", QUICK)
def test_batch_size_bounds_the_passes_and_neither_it_nor_the_order_changes_the_maps(name):
    model, images, rows = zoo.build("batch norm and dropout"), zoo.images(6), []
    expected = agop.explain(model, images, f"captum:{name}")
    model[0].register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    for size in (5, 1):
        assert_close(agop.explain(model, images.flip(0), f"captum:{name}", batch_size=size), expected.flip(0))
    assert 0 < max(rows) <= 5  # not 1: some methods need several rows per image


@pytest.mark.parametrize("name", [*ATTRIBUTIONS, *QUICK, *marked(["KernelShap"])])
def test_model_images_and_random_state_are_unchanged(name):
    model, images = zoo.build("batch norm and dropout").train(), zoo.images(2)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before, attributes = state_of(model), [set(vars(module)) for module in model.modules()]
    with torch.inference_mode():
        if name in ATTRIBUTIONS:
            ATTRIBUTIONS[name](model, prior()).attribute(images)
        else:
            maps = agop.explain(model, images, f"captum:{name}")
            assert (maps.shape, maps.dtype) == ((2, 12, 12), torch.float32)
            assert (maps >= 0).all()
    if name in ATTRIBUTIONS:
        ATTRIBUTIONS[name](model, prior()).attribute(images.requires_grad_())
    assert_same(before, state_of(model))
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert images.grad is None
    assert images.requires_grad == (name in ATTRIBUTIONS)


@pytest.mark.parametrize("name", QUICK)
def test_one_target_explains_every_image_of_a_batch(name):
    maps = agop.explain(PLAIN, IMAGES, f"captum:{name}", target=1)
    each = torch.cat([agop.explain(PLAIN, image[None], f"captum:{name}", target=[1]) for image in IMAGES])
    assert_close(maps, each)
    assert (maps.flatten(1).sum(1) > 0).sum() >= (0 if "GradCam" in name else 4)
    with pytest.raises(InputError, match="out of range"):
        agop.explain(PLAIN, IMAGES, f"captum:{name}", target=3)


@pytest.mark.parametrize("kind", [kind for kind in zoo.KINDS if kind not in ("attention", "layer norm")])
@pytest.mark.parametrize("name", ["Saliency", "IntegratedGradients", "DeepLift", "GuidedBackprop", "Occlusion"])
def test_models_of_every_kind_get_nonzero_maps(kind, name):
    """Also models that return an object with logits, like Hugging Face's."""
    maps = agop.explain(zoo.build(kind), zoo.images(), f"captum:{name}")
    assert maps.isfinite().all()
    assert (maps.flatten(1).sum(1) > 0).all()
    if name == "Saliency":
        assert_close(maps, agop.explain(zoo.build(kind), zoo.images(), "vanilla"))
    if kind.startswith("one logit") and name != "GuidedBackprop":  # class 0 has the logit −z, so the same map
        for target in (0, 1):
            assert_close(agop.explain(zoo.build(kind), zoo.images(), f"captum:{name}", target=target), maps)


class Functional(nn.Module):
    """A network like CNN8by8: functional ReLU, and one pool called twice."""

    def __init__(self, activation=torch.relu, pool=None):
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.activation, self.pool, self.head = activation, nn.MaxPool2d(2), nn.Linear(24, 3)
        self.second_pool = pool or self.pool

    def forward(self, x):
        x = self.pool(self.activation(self.conv1(x)))
        return self.head(self.second_pool(self.activation(self.conv2(x))).flatten(1))


ACTIVATIONS = {"Relu": functional.relu, "Clamp": lambda x: x.clamp(min=0), "Gelu": nn.GELU(), "Tanh": torch.tanh}


@pytest.mark.parametrize("name", ["DeepLift", "GuidedBackprop", "GuidedGradCam", "Deconvolution", "LayerLRP"])
@pytest.mark.parametrize("operation", ACTIVATIONS)
def test_activation_that_captum_does_not_override_raises(operation, name):
    """Called directly, Captum returns something between its attribution and the plain gradient."""
    model, images = Functional(ACTIVATIONS[operation], nn.MaxPool2d(2)), torch.randn(2, 1, 8, 8)
    before = state_of(model)
    if operation in ("Relu", "Clamp") or name in ("DeepLift", "LayerLRP"):
        with pytest.raises(ModelError, match=rf"captum:{name} overrides .*computes {operation} .*captum:Integrated"):
            agop.explain(model, images, f"captum:{name}")
    else:
        with pytest.warns(AGOPWarning, match=f"captum:{name} is the plain gradient: the model has no nn.ReLU"):
            agop.explain(model, images, f"captum:{name}")
    assert_same(before, state_of(model))
    assert (agop.explain(model, images, "captum:IntegratedGradients").flatten(1).sum(1) > 0).all()


def test_functional_pooling_and_sum_raise_where_captum_overrides_them():
    pooled, images = Functional(nn.ReLU(), lambda x: functional.max_pool2d(x, 2)), torch.randn(2, 1, 8, 8)
    for name in ("DeepLift", "LRP"):
        with pytest.raises(ModelError, match="computes MaxPool2DWithIndices"):
            agop.explain(pooled, images, f"captum:{name}")
    assert agop.explain(pooled, images, "captum:GuidedBackprop").max() > 0
    residual = agop.bench.ResNet18(3)
    with pytest.raises(ModelError, match="computes Add"):
        agop.explain(residual, zoo.images(2, shape=(3, 32, 32)), "captum:LRP")


@pytest.mark.parametrize("name", ["DeepLift", "LRP"])
def test_module_that_is_called_twice_raises_captum_error(name):
    with pytest.raises(ModelError, match=rf"captum:{name} doesn't work.*used more than once"):
        agop.explain(Functional(nn.ReLU()), torch.randn(2, 1, 8, 8), f"captum:{name}")


class Probabilities(nn.Module):
    """A network with a function after its logits."""

    def __init__(self, end):
        super().__init__()
        self.net, self.end = PLAIN, end

    def forward(self, x):
        return self.end(self.net(x))


@pytest.mark.parametrize("name", ["Saliency", "DeepLift", "GuidedBackprop", "LRP", "LayerGradCam"])
def test_logits_before_a_softmax_are_attributed(name):
    """DeepLift would normalise the gradients at a softmax module, and LRP rejects it."""
    expected = agop.explain(PLAIN, IMAGES, f"captum:{name}")
    for end in (nn.Softmax(dim=1), nn.LogSoftmax(dim=1)):
        assert_close(agop.explain(Probabilities(end), IMAGES, f"captum:{name}"), expected)
    functional = (Probabilities(end) for end in (lambda z: z.softmax(1), lambda z: z.log_softmax(1)))
    with pytest.warns(AGOPWarning, match="gradients are those of the log-probabilities"):
        probabilities, logarithms = (agop.explain(model, IMAGES, f"captum:{name}") for model in functional)
    assert_close(probabilities, logarithms)


def test_captum_error_becomes_a_model_error_and_the_model_is_unchanged():
    model, images = zoo.build("attention").train(), zoo.images()
    unknown = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PixelShuffle(2), nn.Flatten(), nn.Linear(400, 3))
    before = state_of(model)
    with pytest.raises(ModelError, match=r"captum:LRP doesn't work .* Captum's error: TypeError: Module of type"):
        agop.explain(unknown, images, "captum:LRP")
    with pytest.raises(LayerError, match=r"captum:GuidedGradCam needs maps .* returns \(1, 10, 12\).*gradcam"):
        agop.explain(model, images, "captum:GuidedGradCam")
    with pytest.raises(ModelError, match=r"Captum's error: AssertionError: .*[Ss]tride"):
        agop.explain(model, images, Captum("Occlusion", sliding_window_shapes=(3, 3, 3), strides=(9, 9, 9)))
    assert_same(before, state_of(model))
    (broken := zoo.build("plain")).body[4].register_forward_hook(_raise_in_captum_pass(broken.body[3]))
    before = state_of(broken)
    with pytest.raises(ModelError, match="Captum's error: ValueError: user error"):
        agop.explain(broken, images, "captum:LayerGradCam")
    assert_same(before, state_of(broken))


def _raise_in_captum_pass(layer):
    """A hook that raises during a forward pass in which Captum has its own hook."""

    def hook(*_):
        if any("captum" in function.__module__ for function in layer._forward_hooks.values()):
            raise ValueError("user error")

    return hook


def test_seed_determines_the_maps():
    baselines = torch.randn(9, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    first, again, other = (
        agop.explain(PLAIN, IMAGES, Captum("GradientShap", baselines=baselines, stdevs=0.3, seed=seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, rtol=0.01)
    assert Captum("GradientShap") != Captum("GradientShap", seed=1) == agop.methods.create("captum:GradientShap:seed=1")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
def test_options_reach_captum_constructor_and_attribute():
    inputs = IMAGES.clone().requires_grad_()
    direct = attr.DeepLift(PLAIN, multiply_by_inputs=False).attribute(inputs, baselines=0.3, target=TARGETS)
    method = Captum("DeepLift", multiply_by_inputs=False, baselines=0.3)
    assert_close(agop.explain(PLAIN, IMAGES, method), reduced(direct))
    direct = attr.Occlusion(PLAIN).attribute(IMAGES, sliding_window_shapes=(1, 3, 3), target=TARGETS)
    assert_close(agop.explain(PLAIN, IMAGES, Captum("Occlusion", sliding_window_shapes=(1, 3, 3))), reduced(direct))
    assert_close(agop.explain(PLAIN, IMAGES, "captum:Occlusion:sliding_window_shapes=(1,3,3)"), reduced(direct))
    halves = torch.zeros(1, 3, 12, 12, dtype=torch.long)
    halves[..., 6:] += 1
    halves[..., 6:, :] += 2
    direct = attr.ShapleyValues(PLAIN).attribute(IMAGES, feature_mask=halves, target=TARGETS)
    assert_close(agop.explain(PLAIN, IMAGES, Captum("ShapleyValues", feature_mask=halves)), reduced(direct))
    coarse = attr.LayerGradCam(PLAIN, PLAIN.body[0]).attribute(inputs, target=TARGETS, relu_attributions=True)
    maps = agop.explain(PLAIN, IMAGES, Captum("LayerGradCam", layer="body.0", relu_attributions=True))
    assert_close(maps, reduced(coarse))
    assert_close(maps, agop.explain(PLAIN, IMAGES, "gradcam", layer="body.0"))


INVALID = {
    UnknownNameError: [
        (lambda: agop.methods.get("captum:DeepLft"), "did you mean 'captum:DeepLift'.*captum:LRP"),
        (lambda: Captum("NoiseTunnel"), "NoiseTunnel isn't supported, it wraps another .*smoothgrad"),
        (lambda: Captum("NeuronGradient"), "isn't supported, it explains a neuron instead of a class"),
        (lambda: Captum("FeaturePermutation"), "of the batch.*use captum:FeatureAblation"),
        (lambda: Captum("LayerFeaturePermutation"), "the other images of the batch"),
        (lambda: Captum("LLMAttribution"), "captum:LLMAttribution isn't supported, it doesn't attribute im"),
        (lambda: Captum("Foo"), "^no method is named 'captum:Foo': known: captum:Deconvolution, "),
        (lambda: agop.methods.get("cpatum:DeepLift"), "no method is named 'cpatum:DeepLift'"),
        (lambda: agop.methods.get("quantus:vanilla"), "no method is named 'quantus:vanilla'"),
        (lambda: agop.methods.get(":DeepLift"), "no method is named ':DeepLift'"),
        (lambda: Captum("Occlusion", stride=2), "option of captum:Occlusion.*'strides'"),
        (lambda: Captum("Saliency", target=2), "no option of captum:Saliency is named 'target'"),
        (lambda: agop.methods.create("captum:Occlusion:stride=2"), "did you mean 'strides'"),
    ],
    InputError: [
        (lambda: Captum("DeepLift", layer="body.2"), "captum:DeepLift doesn't use a layer"),
        (lambda: agop.explain(PLAIN, IMAGES, "captum:DeepLift", layer="body.2"), "layer= is for"),
        (lambda: agop.explain(PLAIN, IMAGES, "captum:ShapleyValues"), "pass feature_mask= with few features"),
        (lambda: Captum("IntegratedGradients", baselines=IMAGES), r"baselines has \d images.*pass one"),
        (lambda: Captum("DeepLift", baselines=(IMAGES,)), r"baselines has \d images"),
        (lambda: Captum("Lime", feature_mask=IMAGES.long()), r"feature_mask has \d images"),
    ],
}


@pytest.mark.parametrize(("error", "case"), [(error, case) for error, cases in INVALID.items() for case in cases])
def test_unknown_name_or_invalid_option_raises(error, case):
    make, message = case
    with pytest.raises(error, match=message):
        make()


def test_several_baselines_are_allowed_where_captum_takes_a_distribution():
    for name in ("GradientShap", "DeepLiftShap", "LayerGradientShap", "LayerDeepLiftShap"):
        assert Captum(name, baselines=IMAGES).options["baselines"] is IMAGES
    assert Captum("IntegratedGradients", baselines=IMAGES[:1]).options


class Tokens(nn.Module):
    """4×4 patches as tokens (N,T,D) after prefix tokens, or as a map with channels last."""

    def __init__(self, last=False, prefix=0):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.norm, self.head = nn.Conv2d(3, 6, 4, stride=4), nn.LayerNorm(6), nn.Linear(6, 3)
        self.last, self.num_prefix_tokens = last, prefix

    def forward(self, x):
        features = self.patches(x).permute(0, 2, 3, 1)
        if not self.last:
            features = torch.cat([torch.ones(len(x), self.num_prefix_tokens, 6), features.flatten(1, 2)], dim=1)
        return self.head(self.norm(features).pow(3).flatten(1, -2).mean(1))


@pytest.mark.filterwarnings("ignore:.*is the plain gradient")
@pytest.mark.parametrize("name", ["LayerGradCam", "GuidedGradCam"])
@pytest.mark.parametrize("last", [True, False])
def test_captum_gradcam_raises_where_channels_are_not_first(name, last):
    model, images = Tokens(last), torch.randn(2, 3, 24, 32)
    with pytest.raises(LayerError, match=rf"captum:{name} .*channels first.*LayerNorm.*gradcam"):
        agop.explain(model, images, f"captum:{name}", layer="norm")
    assert agop.explain(model, images, f"captum:{name}", layer="patches").std() > 0
    assert agop.explain(model, images, "captum:LayerActivation", layer="norm").std() > 0


def test_register_tokens_are_skipped():
    """Without num_prefix_tokens, nine tokens would be a 3×3 grid."""
    model, images = Tokens(prefix=5).eval(), torch.randn(2, 3, 8, 8)
    expected = reduced(model.norm(model.patches(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), size=(8, 8))
    assert_close(agop.explain(model, images, "captum:LayerActivation", layer="norm"), expected)


def test_lime_map_of_zeros_warns():
    pytest.importorskip("sklearn", reason="Captum fits it with scikit-learn")
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    nn.init.normal_(model[1].weight, std=1e-6)
    with pytest.warns(AGOPWarning, match=r"captum:Lime.*2 of 2 images.*interpretable_model="):
        agop.explain(model, torch.randn(2, 3, 4, 4), Captum("Lime", n_samples=10))


@pytest.mark.slow
def test_captum_is_imported_only_when_used():
    code = (
        "import sys, torch, agop; from agop.bench.networks import CNN8by8; names = agop.methods.names(); "
        "agop.explain(CNN8by8(), torch.randn(2, 1, 8, 8), 'vanilla'); print('captum' in sys.modules); "
        "agop.methods.get('captum:Saliency'); print('captum' in sys.modules, agop.methods.names() == names)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "True", "True"]


def test_evaluate_takes_captum_methods():
    masks = torch.zeros(4, 12, 12, dtype=torch.bool)
    masks[:, 3:6, 3:6] = True
    occlusion = Captum("Occlusion", sliding_window_shapes=(3, 4, 4))
    methods = ["vanilla", "captum:DeepLift", Captum("LayerGradCam"), occlusion]
    result = agop.evaluate(PLAIN, IMAGES, masks, methods, metrics=["energy", "pointing_game"], controls=False)
    assert list(result.scores) == ["vanilla", "captum:DeepLift", "captum:LayerGradCam", "captum:Occlusion"]
    maps = agop.explain(PLAIN, IMAGES, "captum:DeepLift")
    torch.testing.assert_close(result.scores["captum:DeepLift"]["energy"], agop.metrics.energy(maps, masks))
    assert "captum:DeepLift " in str(result)


@pytest.mark.slow
def test_explain_command_takes_captum_methods(tmp_path):
    torch.manual_seed(0)
    model = CNN8by8()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    for index in range(2):
        Image.fromarray(np.random.default_rng(index).integers(0, 255, (8, 8), np.uint8)).save(tmp_path / f"{index}.png")
    command = ("explain", "agop.bench:CNN8by8", "0.png", "1.png", "--weights", "w.pt", "--size", "8", "--gray")
    methods = ("--method", "captum:Occlusion", "--method", "captum:LayerGradCam", "--layer", "conv1")
    result = run(*command, *methods, "--out", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    maps = load_file(tmp_path / "out" / "maps.safetensors")
    assert set(maps) == {"captum:Occlusion", "captum:LayerGradCam"}
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["methods"]["captum:LayerGradCam"] == {
        "options": {}, "seed": 0, "layer": "conv1",
    }  # fmt: skip
