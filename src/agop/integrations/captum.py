"""Captum in both directions: agop's methods as Captum attributions, and Captum's as methods, `captum:DeepLift`."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import (
    AGOPError,
    AGOPWarning,
    InputError,
    LayerError,
    MissingExtraError,
    ModelError,
    PriorError,
    UnknownNameError,
    warn,
)
from agop.methods.base import Job, Method, signed_sum, sum_channels, takes_layer
from agop.model.layers import CONVOLUTIONS, Layer, as_grid, last_layer, layer_for, output_of, prefix_tokens
from agop.model.logits import is_bypassed, logits_of
from agop.model.outputs import Target, numbers, target_indices
from agop.model.probe import Probe, at_least_float32, captured, check_images, probing, split_batch
from agop.model.state import seeded, unwrapped
from agop.prior.agop import AGOP
from agop.registry import unknown_name_error

try:
    from captum import attr
    from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR
    from captum.attr._core.lrp import SUPPORTED_LAYERS_WITH_RULES, SUPPORTED_NON_LINEAR_LAYERS
    from captum.log import log_usage
except ImportError as error:
    raise MissingExtraError("agop.integrations.captum", "captum") from error

__all__ = ["AGOPGlobal", "AGOPLocal", "AGOPWeighted", "Captum", "method_class"]

_SUPPORTED = (
    "Deconvolution", "DeepLift", "DeepLiftShap", "FeatureAblation", "GradientShap", "GuidedBackprop", "GuidedGradCam",
    "InputXGradient", "IntegratedGradients", "InternalInfluence", "KernelShap", "LRP", "LayerActivation",
    "LayerConductance", "LayerDeepLift", "LayerDeepLiftShap", "LayerFeatureAblation", "LayerGradCam",
    "LayerGradientShap", "LayerGradientXActivation", "LayerIntegratedGradients", "LayerLRP", "Lime", "Occlusion",
    "Saliency", "ShapleyValueSampling", "ShapleyValues",
)  # fmt: skip
_UNSUPPORTED = {
    "NoiseTunnel": (
        "it wraps another attribution: use smoothgrad, or call it in Captum on agop.integrations.captum.AGOPWeighted"
    ),
    "Neuron": "it explains a neuron instead of a class: call it in Captum",
    "FeaturePermutation": "its result depends on the other images of the batch: use captum:FeatureAblation",
}
# Set by `explain`, or they would change the form of the result.
_RESERVED = {
    "self", "forward_func", "model", "layer", "inputs", "target", "additional_forward_args", "return_convergence_delta",
    "return_input_shape", "kwargs",
}  # fmt: skip
# They sample for each image. One image at a time from the same seed: maps don't depend on the rest of the batch.
_SAMPLE_PER_IMAGE = ("GradientShap", "KernelShap", "LayerGradientShap", "Lime")
# They read dimension 1 of a layer's output as its channels.
_CHANNELS_FIRST = ("GuidedGradCam", "LayerGradCam")
# Most rows and columns of the default grid of patches.
_PATCHES = 8
# Operations that Captum overrides only in modules: names of autograd nodes without "Backward0".
_RELU = {"Relu", "Clamp", "ClampMin", "Threshold"}
_NONLINEAR = _RELU | {
    "Elu", "Gelu", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyRelu", "MaxPool2DWithIndices", "Mish", "Prelu",
    "Sigmoid", "Silu", "Softplus", "Tanh",
}  # fmt: skip


class AGOPLocal(attr.GradientAttribution):  # type: ignore[misc]  # Captum has no types
    """Signed gradients (N,C,H,W) as a Captum attribution. `agop-local` and `vanilla` are their absolute value.

    Args:
        forward_func: A model, or a function of images.

    Example:
        >>> AGOPLocal(model).attribute(images, target=3).shape
        torch.Size([8, 3, 32, 32])
    """

    # NoiseTunnel calls the function that this decorator wraps.
    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self, inputs: Tensor | tuple[Tensor], target: Target = None, additional_forward_args: Any = None
    ) -> Tensor | tuple[Tensor]:
        """Attributions (N,C,H,W) of the inputs (N,C,H,W); a tuple for a tuple of one tensor.

        target=None explains the predicted classes. In a NoiseTunnel, pass a target: without one, each noisy copy is
        explained for its own predicted class.
        """
        images = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
        check_images(images)
        extra = additional_forward_args
        arguments = extra if isinstance(extra, tuple) else () if extra is None else (extra,)
        one_for_all = isinstance(target, Tensor) and target.numel() == 1
        targets = target_indices(int(target) if one_for_all else target, len(images))  # type: ignore[arg-type]
        values = self._values(images, targets, arguments).to(images.device)
        return (values,) if isinstance(inputs, tuple) else values

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        """Signed gradients (N,C,H,W)."""
        function = self.forward_func
        if not callable(function):
            raise InputError(f"forward_func is a {type(function).__name__}: pass a model, or a function of images")
        function = unwrapped(function) if isinstance(function, nn.Module) else function
        plain = isinstance(function, nn.Module) and not arguments
        with probing(function if plain else _FunctionModule(function, arguments)) as probe:
            values = probe.gradients(images, targets).values
        return values.to(at_least_float32(values.dtype))


class _FunctionModule(nn.Module):
    """A function with its additional arguments.

    A model becomes a submodule if it is the function itself or the owner of a bound method, so its state is restored.
    A model that a function only refers to isn't seen.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        self.owner = owner if isinstance(owner, nn.Module) else None
        self.function, self.arguments = function, arguments

    def forward(self, images: Tensor) -> Any:
        return self.function(images, *self.arguments)


class _PriorAttribution(AGOPLocal):
    """Base of the attributions that use a prior."""

    def __init__(self, forward_func: Callable[..., Any], prior: AGOP) -> None:
        super().__init__(forward_func)
        if not isinstance(prior, AGOP):
            raise PriorError(f"prior is a {type(prior).__name__}: pass an agop.AGOP, for example agop.AGOP.load(path)")
        self.prior = prior

    def _check_prior(self, images: Tensor) -> None:
        if isinstance(self.forward_func, nn.Module):
            self.prior.check(self.forward_func, images)
        else:  # a function doesn't show whose weights it uses
            self.prior.check_shape(images)


class AGOPWeighted(_PriorAttribution):
    """Signed gradients times sqrt(diag(M) / max diag(M)): `agop-weighted` before channels are summed.

    Args:
        forward_func: A model, or a function of images.
        prior: The AGOP of the model.

    Raises:
        PriorError: `prior` isn't an AGOP, or not for images of this shape.

    Example:
        >>> NoiseTunnel(AGOPWeighted(model, prior)).attribute(images, nt_samples=20, target=3).shape
        torch.Size([8, 3, 32, 32])
    """

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        gradients = super()._values(images, targets, arguments)
        return gradients * self.prior.weights.to(gradients)


class AGOPGlobal(_PriorAttribution):
    """diag(M) for every image: `agop-global` before channels are summed. Doesn't run the model.

    Args:
        forward_func: A model, or a function of images.
        prior: The AGOP of the model.

    Raises:
        PriorError: `prior` isn't an AGOP, or not for images of this shape.

    Example:
        >>> AGOPGlobal(model, prior).attribute(images).shape
        torch.Size([8, 3, 32, 32])
    """

    def _values(self, images: Tensor, targets: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
        self._check_prior(images)
        diagonal = self.prior.diagonal.to(images.device, at_least_float32(images.dtype))
        return diagonal.expand(len(images), -1, -1, -1).clone()


def Captum(attribution: str, *, layer: Layer = None, seed: int = 0, **options: Any) -> CaptumMethod:
    """A Captum attribution as a configured method, `captum:NAME`: maps (N,H,W), Σ_channels |attribution|.

    Args:
        attribution: The name of Captum's class.
        layer: For an attribution at a layer: its name or module, by default GradCAM's.
        seed: Seed of attributions that sample.
        options: Captum's own, of its constructor or of `attribute`, the same for all images.

    Returns:
        A method for `explain` and `evaluate`.

    Raises:
        UnknownNameError: An attribution that doesn't exist or isn't supported, or an unknown option.
        InputError: A layer for an attribution without one, or an option with several images.

    Example:
        >>> agop.explain(model, images, Captum("Occlusion", sliding_window_shapes=(3, 4, 4))).shape
        torch.Size([8, 32, 32])
    """
    kind = method_class(attribution)
    if layer is None:
        return kind(options, seed)
    if not takes_layer(kind):
        raise InputError(f"{kind.name} doesn't use a layer: remove layer=")
    return kind(options, seed, layer)  # type: ignore[call-arg]  # takes_layer has checked for the field


@cache
def method_class(name: str) -> type[CaptumMethod]:
    """The class of the method `captum:NAME`. Raises UnknownNameError."""
    supported = sorted(set(_SUPPORTED) & set(attr.__all__))
    names = [f"captum:{each}" for each in supported]
    if name in supported:
        base = CaptumLayerMethod if "layer" in _parameters(name, "__init__") else CaptumMethod
        about = f"Captum's {name}, Σ_channels |attribution|."
        return type(name, (base,), {"name": f"captum:{name}", "attribution": name, "__doc__": about})
    if name not in attr.__all__:
        raise unknown_name_error("method", f"captum:{name}", names)
    reason = next((why for part, why in _UNSUPPORTED.items() if part in name), "it doesn't attribute images")
    raise UnknownNameError(f"captum:{name} isn't supported, {reason}; supported: {', '.join(names)}")


@dataclass(frozen=True)
class CaptumMethod(Method):
    """Σ_channels |attribution| of a Captum attribution. `options` go to its constructor or to `attribute`."""

    attribution: ClassVar[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Skip the registration: Captum's methods run only when named."""

    def __post_init__(self) -> None:
        names = _option_names(self.attribution)
        for option, value in self.options.items():
            if option not in names:
                raise unknown_name_error(f"option of {self.name}", option, names)
            # The baselines of the …Shap attributions are a distribution, used for each image.
            distribution = option == "baselines" and self.attribution.endswith(("DeepLiftShap", "GradientShap"))
            if option not in ("baselines", "feature_mask") or distribution:
                continue
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor) and tensor.ndim == 4 and len(tensor) > 1:
                    raise InputError(
                        f"{option} has {len(tensor)} images, but applies to every explained image: pass one"
                    )

    @classmethod
    def option_types(cls) -> dict[str, Any]:
        own = super().option_types()
        del own["options"]
        return dict.fromkeys(_option_names(cls.attribution), Any) | own

    @classmethod
    def arguments(cls, options: dict[str, Any]) -> dict[str, Any]:
        captums = {name: value for name, value in options.items() if name in _option_names(cls.attribution)}
        own = {name: value for name, value in options.items() if name not in captums}
        return own | {"options": captums}

    def prepared(self, job: Job) -> CaptumMethod:
        if "model" in _parameters(self.attribution, "__init__"):
            self._check_modules(job.probe, job.images[:1])
        return self

    def maps(self, job: Job) -> Tensor:
        return self._maps(job, sum_channels)

    def signed_maps(self, job: Job) -> Tensor:
        return self._maps(job, signed_sum)

    def _maps(self, job: Job, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """The maps; `reduce` sums over channels."""
        images = job.probe.placed(job.images)
        targets = job.probe.checked(job.targets, job.probe.logits(images, job.targets))
        options = self._options(images)
        rows = _rows_per_image(self.attribution, options)
        one_by_one = self.attribution in _SAMPLE_PER_IMAGE or job.probe.mixes_samples
        size = 1 if one_by_one else max(1, job.rows // rows)
        parts = []
        try:
            explainer = self._explainer(job.probe)
            for part, classes in zip(torch.split(images, size), torch.split(targets, size), strict=True):
                arguments = self._arguments(options, classes, max(job.rows, rows * len(part)), job.probe)
                with seeded(self.seed, [images]), warnings.catch_warnings():
                    # Captum warns that it sets hooks, which are on a copy, or that it fits a model per image.
                    warnings.simplefilter("ignore", UserWarning)
                    result = explainer.attribute(part.requires_grad_(), **arguments)
                result = result[0] if isinstance(result, tuple) else result
                parts.append(self._reduced(result.detach(), part, job.probe, reduce))
        except (AGOPError, AGOPWarning, torch.OutOfMemoryError):
            raise
        except Exception as error:  # Captum asserts, and passes on what a model's layers raise
            reason = f"Captum's error: {type(error).__name__}: {error}"
            raise ModelError(f"{self.name} doesn't work with this model or these options; {reason}") from error
        maps = torch.cat(parts).to(at_least_float32(images.dtype))
        zero = int((maps == 0).flatten(1).all(1).sum())
        if self.attribution == "Lime" and zero:
            warn(
                f"{self.name}: the map is zero for {zero} of {len(maps)} images because the logits change too little "
                "for its Lasso; pass interpretable_model=SkLearnLasso(alpha=…) with alpha below Captum's 0.01"
            )
        return maps

    def _options(self, images: Tensor) -> dict[str, Any]:
        """The user's options, and defaults for those that Captum requires. With the first, the others don't apply."""
        name, default = self.attribution, dict[str, Any]()
        if name == "ShapleyValues" and "feature_mask" not in self.options:
            raise InputError(f"{self.name} tries every order of its features: pass feature_mask= with few features")
        if name == "Occlusion":
            # Windows of 1/8 of each side, moved by half a window: at most 225 positions at any image size.
            _, channels, *sides = images.shape
            window = [min(side, max(2, -(-side // _PATCHES))) for side in sides]
            strides = (channels, *(max(1, side // 2) for side in window))
            default = {"sliding_window_shapes": (channels, *window), "strides": strides}
        elif name.endswith("Shap") and name != "KernelShap":
            # Captum's DeepLiftShap rejects a single baseline.
            default = {"baselines": torch.zeros_like(images[:1]).repeat(2 if "DeepLift" in name else 1, 1, 1, 1)}
        elif name in ("FeatureAblation", "ShapleyValueSampling"):
            default = {"feature_mask": _patches(images)}
        elif name in ("KernelShap", "Lime"):
            grid = _patches(images)
            # Captum's default of 25 samples is less than the number of patches whose weights it fits.
            default = {"feature_mask": grid, "n_samples": 4 * (int(grid.max()) + 1)}
        return dict(self.options) if next(iter(default), None) in self.options else default | dict(self.options)

    def _arguments(self, options: dict[str, Any], targets: Tensor, rows: int, probe: Probe) -> dict[str, Any]:
        """Arguments of `attribute`, which takes at most `rows` rows per pass."""
        accepted = _parameters(self.attribution, "attribute")
        given = options | {"target" if probe.output.label == "logit" else "additional_forward_args": targets}
        # With more than one perturbation per pass, LayerFeatureAblation doesn't repeat the targets.
        if self.attribution != "LayerFeatureAblation":
            given = {"internal_batch_size": rows, "perturbations_per_eval": max(1, rows // len(targets))} | given
        return {option: value for option, value in given.items() if option in accepted}

    def _explainer(self, probe: Probe) -> Any:
        """Captum's object, on the model itself or, where Captum sets hooks and changes weights, on a copy."""
        layer, accepted = getattr(self, "layer", None), _parameters(self.attribution, "__init__")
        options = {option: value for option, value in self.options.items() if option in accepted}

        def function(images: Tensor, targets: Tensor | None = None) -> Tensor:
            parts = split_batch(1 if probe.mixes_samples else len(images), images, targets)
            return _explained(torch.cat([probe.forward(*part) for part in parts]), targets, probe)

        if "model" in accepted:
            model, layer = _hookable_copy(probe.model, layer)
            function = _Explained(model, probe)
        return getattr(attr, self.attribution)(function, *([] if layer is None else [layer]), **options)

    def _check_modules(self, probe: Probe, image: Tensor) -> None:
        """Raise ModelError if the model computes something that Captum should override, but overrides only in modules.

        Its result would be something between the attribution and the plain gradient.
        """
        overridden, operations = [nn.ReLU], _RELU
        if "LRP" in self.attribution:
            overridden, operations = [*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS], _NONLINEAR | {"Add"}
        elif "DeepLift" in self.attribution:
            overridden, operations = list(SUPPORTED_NON_LINEAR), _NONLINEAR
        by_modules: list[Any] = []
        modules = [module for module in probe.model.modules() if type(module) in overridden]
        probe.logits(image)  # the first call may take several passes

        def collect(output: Any) -> bool:
            by_modules.append(output.grad_fn)
            return True

        with captured([probe.model]) as outputs, captured(modules, collect):
            result = probe.forward(probe.placed(image).requires_grad_())
        plain = probe.output.has_classes and probe.output.forward is None  # `probe.forward` may add a logarithm
        result = logits_of(outputs[probe.model], 1) if plain else result
        missed = operations & _operations(result, set(by_modules))
        if missed:
            raise ModelError(
                f"{self.name} overrides modules, but the model computes {', '.join(sorted(missed))} with a function or "
                f"with another module: use {', '.join(kind.__name__ for kind in overridden)} modules, or choose "
                "captum:IntegratedGradients"
            )
        if overridden == [nn.ReLU] and not by_modules:
            warn(f"{self.name} is the plain gradient: the model has no nn.ReLU, which is what Captum overrides")

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Maps (N,H,W) at the size of the images."""
        return reduce(attribution)


@dataclass(frozen=True)
class CaptumLayerMethod(CaptumMethod):
    """A Captum attribution at a layer, by default GradCAM's. Its maps are scaled bilinearly to the images' size."""

    needs_images: ClassVar[bool] = True
    layer: Layer = None

    def prepared(self, job: Job) -> CaptumLayerMethod:
        layer, image = self.layer, job.images[:1]
        if layer is None and self.attribution == "LayerLRP":  # has rules for convolutions and norms, but not for blocks
            layer, _ = last_layer(job.probe, image)
        layer = layer_for(job.probe, image, layer)
        if self.attribution in _CHANNELS_FIRST:
            features, first = output_of(job.probe, image, layer), isinstance(layer, CONVOLUTIONS)
            if as_grid(features, 1, image.shape[-2:], channels_first=first) is not features:
                raise LayerError(
                    f"{self.name} needs maps with channels first, but the layer {type(layer).__name__} returns "
                    f"{tuple(features.shape)}: choose a convolution, or use gradcam, which reads tokens and channels "
                    "last"
                )
        super().prepared(job)
        return replace(self, layer=layer)

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        if self.attribution == "GuidedGradCam":  # takes a layer but attributes the input
            return super()._reduced(attribution, images, probe, reduce)
        size, prefix = images.shape[-2:], prefix_tokens(probe.model)
        first = isinstance(self.layer, CONVOLUTIONS) or self.attribution in _CHANNELS_FIRST
        coarse = reduce(as_grid(attribution, len(images), size, prefix, channels_first=first))
        return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _parameters(attribution: str, function: str) -> list[str]:
    return list(inspect.signature(getattr(getattr(attr, attribution), function)).parameters)


def _option_names(attribution: str) -> list[str]:
    """Names of the options that a user may set, of the constructor and of `attribute`."""
    names = [*_parameters(attribution, "__init__"), *_parameters(attribution, "attribute")]
    return [name for name in names if name not in _RESERVED]


def _patches(images: Tensor) -> Tensor:
    """Feature mask (1,C,H,W): a grid of at most 8×8 patches, numbered from 0, the same in all channels."""
    grid = torch.zeros((), dtype=torch.long, device=images.device)
    for side in images.shape[2:]:
        places = torch.arange(side, device=images.device) * min(_PATCHES, side) // side
        grid = grid[..., None] * min(_PATCHES, side) + places
    return grid.expand(1, images.shape[1], *grid.shape).contiguous()


def _rows_per_image(name: str, options: dict[str, Any]) -> int:
    """Number of rows that an image takes in a forward pass."""
    if "DeepLiftShap" in name:
        return 2 * len(options["baselines"])
    if "GradientShap" in name:
        return int(options.get("n_samples", 5))
    return 2 if "DeepLift" in name or name == "LayerConductance" else 1


class _Explained(nn.Module):
    """What the probe explains, of a copy of its model."""

    def __init__(self, model: nn.Module, probe: Probe) -> None:
        super().__init__()
        self.model, self.probe = model, probe
        self.training = False

    def forward(self, images: Tensor, targets: Tensor | None = None) -> Tensor:
        """The logits, or output, of a copy of the images: the model may write to its input."""
        forward, copied = self.probe.output.forward, images.clone()
        returned = self.model(copied) if forward is None else forward(self.model, copied)
        return _explained(self.probe.read(returned, len(images), targets), targets, self.probe)


def _explained(scores: Tensor, targets: Tensor | None, probe: Probe) -> Tensor:
    """The output (N,), or without targets the logits (N,K): one logit z becomes two, −z and z."""
    if targets is not None:
        return numbers(scores, targets, probe.output)
    return torch.cat([-scores, scores], dim=1) if scores.shape[1] == 1 else scores


class _Unhooked(nn.Module):
    """A module that Captum doesn't override. LRP asks for the rules of modules without parts: its part has one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.function, self.part = module.forward, nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(self.function(x))  # type: ignore[no-any-return]


def _hookable_copy(model: nn.Module, layer: nn.Module | None) -> tuple[nn.Module, nn.Module | None]:
    """A copy of the model and its layer for Captum's hooks, which need the unchanged input of each module."""
    try:
        model, layer = copy.deepcopy((model, layer))
    except Exception as error:  # any attribute of the model may fail
        raise ModelError(
            f"the model can't be copied, and Captum would modify it: {error}; choose another attribution"
        ) from error
    for module in list(model.modules()):
        if hasattr(module, "inplace"):
            module.inplace = False  # type: ignore[assignment]
        for name, child in module.named_children():
            bypassed = is_bypassed(child)
            if child is not layer and (bypassed or type(child) in (nn.Flatten, nn.Identity)):
                setattr(module, name, _Unhooked(nn.Identity() if bypassed else child).eval())
    return model, layer


def _operations(output: Tensor, excluded: set[Any]) -> set[str]:
    """Names of the operations that an output was computed by, except by excluded autograd nodes.

    Not of a sum with a constant or a weight, which needs no rule.
    """
    nodes: set[Any] = set()
    waiting: set[Any] = {output.grad_fn} - {None}
    while waiting:
        nodes |= waiting
        waiting = {each for node in waiting for each, _ in node.next_functions} - nodes - {None}
    names = set()
    for node in nodes - excluded:
        name = str(node.name()).partition("Backward")[0]
        added = [each for each, _ in node.next_functions if each is not None and "AccumulateGrad" not in each.name()]
        if name != "Add" or len(added) > 1:
            names.add(name)
    return names
