"""Captum's attributions as agop methods, batched, seeded and on an undisturbed model."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from captum import attr
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import AGOPError, AGOPWarning, InputError, LayerError, ModelError, warn
from agop.interop.captum.model_copy import hookable_copy, two_class_logits, warn_if_plain_gradient
from agop.interop.captum.options import defaults, multi_image_options, option_names, rows_per_image, takes
from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels
from agop.model.default_layer import last_layer
from agop.model.feature_grid import CONVOLUTIONS, as_grid, prefix_tokens
from agop.model.layers import Layer, layer_for, output_of
from agop.model.probe import Probe, at_least_float32
from agop.registry import unknown_name_error

# They sample for each image. One image at a time from the same seed: maps don't depend on the rest of the batch.
_SAMPLE_PER_IMAGE = ("GradientShap", "KernelShap", "LayerGradientShap", "Lime")
# They read dimension 1 of a layer's output as its channels.
_CHANNELS_FIRST = ("GuidedGradCam", "LayerGradCam")
# It has rules for convolutions and norms, but not for activations and blocks.
_NEEDS_RULE = ("LayerLRP",)
# They take a layer but attribute the input.
_INPUT_SIZED = ("GuidedGradCam",)


@dataclass(frozen=True)
class CaptumMethod(Method):
    """Σ_channels |attribution| of a Captum attribution. `options` go to its constructor or to `attribute`."""

    attribution: ClassVar[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Skip the registration: Captum's methods run only when named."""

    def __post_init__(self) -> None:
        names = option_names(self.attribution)
        for option in self.options:
            if option not in names:
                raise unknown_name_error(f"option of {self.name}", option, names)
        for option, count in multi_image_options(self.attribution, self.options).items():
            raise InputError(f"{option} has {count} images, but applies to every explained image: pass one")

    @classmethod
    def option_types(cls) -> dict[str, Any]:
        own = super().option_types()
        del own["options"]
        return dict.fromkeys(option_names(cls.attribution), Any) | own

    @classmethod
    def arguments(cls, options: dict[str, Any]) -> dict[str, Any]:
        captums = {name: value for name, value in options.items() if name in option_names(cls.attribution)}
        own = {name: value for name, value in options.items() if name not in captums}
        return own | {"options": captums}

    def maps(self, job: Job) -> Tensor:
        images = job.probe.placed(job.images)
        targets = job.probe.checked(job.targets, job.probe.logits(images))
        options = self._options(images)
        one_by_one = self.attribution in _SAMPLE_PER_IMAGE or job.probe.mixes_samples
        size = 1 if one_by_one else max(1, job.rows // rows_per_image(self.attribution, options))
        parts = zip(torch.split(images, size), torch.split(targets, size), strict=True)
        reduced = [self._reduced(self._attribution(job, *part, options), part[0], job.probe) for part in parts]
        maps = torch.cat(reduced).to(at_least_float32(images.dtype))
        if self.attribution == "Lime":
            self._warn_if_zero(maps)
        return maps

    def _options(self, images: Tensor) -> dict[str, Any]:
        """The user's options, and defaults for those that Captum requires."""
        default, options = defaults(self.attribution, images), dict(self.options)
        if self.attribution == "ShapleyValues" and "feature_mask" not in options:
            raise InputError(f"{self.name} tries every order of its features: pass feature_mask= with few features")
        return options if next(iter(default), None) in options else default | options

    def _attribution(self, job: Job, images: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
        """Captum's attribution of one batch."""
        name = self.attribution
        arguments = {option: value for option, value in options.items() if takes(name, "attribute", option)}
        rows = max(job.rows, rows_per_image(name, options) * len(images))
        limits = {"internal_batch_size": rows, "perturbations_per_eval": max(1, rows // len(images))}
        # With more than one perturbation per pass, LayerFeatureAblation doesn't repeat the targets.
        if name != "LayerFeatureAblation":
            arguments = {key: limit for key, limit in limits.items() if takes(name, "attribute", key)} | arguments
        if takes(name, "attribute", "target"):
            arguments["target"] = targets
        with _translated_errors(self.name):
            explainer = self._explainer(job.probe, images)
            _seed_all(self.seed)
            with warnings.catch_warnings():
                # Captum warns that it sets hooks, which are on a copy, or that it fits a model per image.
                warnings.simplefilter("ignore", UserWarning)
                result = explainer.attribute(images.requires_grad_(), **arguments)
        result = result[0] if isinstance(result, tuple) else result
        return result.detach()  # type: ignore[no-any-return]

    def _explainer(self, probe: Probe, images: Tensor) -> Any:
        """Captum's object, on the model itself or, where Captum would hook or rewrite it, on a copy."""
        name, layer = self.attribution, getattr(self, "layer", None)
        options = {option: value for option, value in self.options.items() if takes(name, "__init__", option)}
        if takes(name, "__init__", "model"):
            model, layer = hookable_copy(probe, layer, images[:1])
            warn_if_plain_gradient(name, model)
            return getattr(attr, name)(model, *([] if layer is None else [layer]), **options)

        def logits(images: Tensor) -> Tensor:
            return two_class_logits(torch.cat([probe.forward(part) for part in probe.parts(images)]))

        return getattr(attr, name)(logits, *([] if layer is None else [layer]), **options)

    def _warn_if_zero(self, maps: Tensor) -> None:
        """Warn if Lime's Lasso has set every weight to zero."""
        zero = int((maps == 0).flatten(1).all(1).sum())
        if zero:
            warn(
                f"{self.name}: the map is zero for {zero} of {len(maps)} images because the logits change too little "
                "for its Lasso; pass interpretable_model=SkLearnLasso(alpha=…) with alpha below Captum's 0.01"
            )

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe) -> Tensor:
        """Maps (N,H,W) at the size of the images."""
        if attribution.shape != images.shape:
            raise ModelError(
                f"{self.name}: Captum's attribution has shape {tuple(attribution.shape)}, the images "
                f"{tuple(images.shape)}: choose another layer or attribution"
            )
        return sum_channels(attribution)


@dataclass(frozen=True)
class CaptumLayerMethod(CaptumMethod):
    """A Captum attribution at a layer, by default GradCAM's. Its maps are scaled bilinearly to the images' size."""

    layer: Layer = None

    def prepared(self, job: Job) -> CaptumLayerMethod:
        layer, image = self.layer, job.images[:1]
        if layer is None and self.attribution in _NEEDS_RULE:
            layer, _ = last_layer(job.probe, image)
        layer = layer_for(job.probe, image, layer)
        if self.attribution in _CHANNELS_FIRST:
            self._check_channels_first(job, layer)
        return replace(self, layer=layer)

    def _check_channels_first(self, job: Job, layer: nn.Module) -> None:
        """Raise LayerError if Captum would average over dimensions that aren't a map's height and width."""
        features = output_of(job.probe, job.images[:1], layer)
        first = isinstance(layer, CONVOLUTIONS)
        if as_grid(features, 1, job.images.shape[-2:], channels_first=first) is not features:
            raise LayerError(
                f"{self.name} needs maps with channels first, but the layer {type(layer).__name__} returns "
                f"{tuple(features.shape)}: choose a convolution, or use gradcam, which reads tokens and channels last"
            )

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe) -> Tensor:
        if self.attribution in _INPUT_SIZED:
            return super()._reduced(attribution, images, probe)
        size, prefix = images.shape[-2:], prefix_tokens(probe.model)
        first = isinstance(self.layer, CONVOLUTIONS) or self.attribution in _CHANNELS_FIRST
        coarse = sum_channels(as_grid(attribution, len(images), size, prefix, channels_first=first))
        return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _seed_all(seed: int) -> None:
    """Seed every generator that Captum uses. `probing` restores their states afterwards."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Raise Captum's errors as ModelError."""
    try:
        yield
    except (AGOPError, AGOPWarning, torch.OutOfMemoryError):
        raise
    except Exception as error:  # Captum asserts, and passes on what a model's layers raise
        message = f"{type(error).__name__}: {error}"
        raise ModelError(f"{name} doesn't work with this model or these options; Captum's error: {message}") from error
