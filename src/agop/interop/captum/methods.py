"""Captum's attributions as our methods: `captum:DeepLift` by name, `Captum("DeepLift", …)` with options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import torch
from captum import attr
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import InputError, LayerError, ModelError, UnknownNameError, warn
from agop.interop.captum.calling import errors_in_our_words, parameters, seed_all, takes
from agop.interop.captum.defaults import (
    CHANNELS_FIRST,
    DRAWS_BY_IMAGE,
    INPUT,
    LAYER,
    copies,
    defaults,
    several,
    why_not,
)
from agop.interop.captum.modules import hookable, two_sided, warn_if_blind
from agop.methods.base import Job, Method, takes_layer
from agop.methods.channels import sum_channels
from agop.model.layers import CONVOLUTIONS, Layer, as_grid, layer_for, output_of, prefix_tokens
from agop.model.probe import Probe, at_least_float32
from agop.registry import unknown_name_error


@dataclass(frozen=True)
class Attributed(Method):
    """An attribution of Captum, Σ_channels |attribution|; `options` are its own, for its constructor or `attribute`."""

    attribution: ClassVar[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Not registered as other methods are: Captum's are found by name, but not run unasked."""

    def __post_init__(self) -> None:
        known = [*parameters(self.attribution, "__init__"), *parameters(self.attribution, "attribute")]
        for option in self.options:
            if option not in known:
                raise unknown_name_error(f"option of {self.name}", option, known)
        for option, images in several(self.attribution, self.options).items():
            raise InputError(f"{option} holds {images} images, and is the same for all that are explained: give one")

    def maps(self, job: Job) -> Tensor:
        images = job.probe.placed(job.images)
        targets = job.probe.checked(job.targets, job.probe.logits(images))
        options = self._options(images)
        alone = self.attribution in DRAWS_BY_IMAGE or job.probe.mixes_samples
        together = 1 if alone else max(1, job.rows // copies(self.attribution, options))
        parts = zip(torch.split(images, together), torch.split(targets, together), strict=True)
        found = [self._reduced(self._attributed(job, *part, options), part[0], job.probe) for part in parts]
        maps = torch.cat(found).to(at_least_float32(images.dtype))
        if self.attribution == "Lime":
            self._warn_if_empty(maps)
        return maps

    def _options(self, images: Tensor) -> dict[str, Any]:
        """The options given, and those that Captum needs beside them."""
        ours, given = defaults(self.attribution, images), dict(self.options)
        if self.attribution == "ShapleyValues" and "feature_mask" not in given:
            raise InputError(f"{self.name} tries every order of its features: give a feature_mask= of a few")
        return given if next(iter(ours), None) in given else ours | given

    def _attributed(self, job: Job, images: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
        """What Captum gives for as many images as may go together."""
        name = self.attribution
        told = {option: value for option, value in options.items() if takes(name, "attribute", option)}
        size = max(job.rows, copies(name, options) * len(images))
        room = {"internal_batch_size": size, "perturbations_per_eval": max(1, size // len(images))}
        # LayerFeatureAblation forgets to repeat the targets for more than one.
        if name != "LayerFeatureAblation":
            told = {option: most for option, most in room.items() if takes(name, "attribute", option)} | told
        if takes(name, "attribute", "target"):
            told["target"] = targets
        with errors_in_our_words(self.name):
            attribution = self._made(job.probe, images)
            seed_all(self.seed)
            with warnings.catch_warnings():
                # Captum tells that it sets hooks, or fits a model an image: what is undone here, or asked for.
                warnings.simplefilter("ignore", UserWarning)
                found = attribution.attribute(images.requires_grad_(), **told)
        found = found[0] if isinstance(found, tuple) else found
        return found.detach()  # type: ignore[no-any-return]

    def _made(self, probe: Probe, images: Tensor) -> Any:
        """Captum's object, on the model itself or, where Captum would hook or rewrite it, on a copy."""
        name, layer = self.attribution, getattr(self, "layer", None)
        own = {option: value for option, value in self.options.items() if takes(name, "__init__", option)}
        if takes(name, "__init__", "model"):
            model, layer = hookable(probe.model, layer, images[:1])
            warn_if_blind(name, model)
            return getattr(attr, name)(model, *([] if layer is None else [layer]), **own)

        def logits(images: Tensor) -> Tensor:
            return two_sided(torch.cat([probe.forward(part) for part in probe.parts(images)]))

        return getattr(attr, name)(logits, *([] if layer is None else [layer]), **own)

    def _warn_if_empty(self, maps: Tensor) -> None:
        """Warn where Lime's Lasso took every weight for too small."""
        empty = int((maps == 0).flatten(1).all(1).sum())
        if empty:
            warn(
                f"{self.name} gives 0 everywhere for {empty} of {len(maps)} images: the logits change too little for "
                "its Lasso; give interpretable_model=SkLearnLasso(alpha=…) with an alpha below Captum's 0.01"
            )

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe) -> Tensor:
        """Maps (N,H,W) at the size of the images."""
        if attribution.shape != images.shape:
            told = f"an attribution of shape {tuple(attribution.shape)} for images {tuple(images.shape)}"
            raise ModelError(f"{self.name}: Captum gave {told}: name another layer, or choose another attribution")
        return sum_channels(attribution)


@dataclass(frozen=True)
class LayerAttributed(Attributed):
    """One that wants to know a layer: the given one, or as GradCAM finds it. A layer's attribution is brought to
    the image's size bilinearly.
    """

    layer: Layer = None

    def prepared(self, job: Job) -> LayerAttributed:
        layer = layer_for(job.probe, job.images[:1], self.layer)
        if self.attribution in CHANNELS_FIRST:
            self._check_channels_first(job, layer)
        return replace(self, layer=layer)

    def _check_channels_first(self, job: Job, layer: nn.Module) -> None:
        """Raise where Captum would average over something else than the places of a map."""
        features = output_of(job.probe, job.images[:1], layer)
        first = isinstance(layer, CONVOLUTIONS)
        if as_grid(features, 1, job.images.shape[-2:], channels_first=first) is not features:
            shape = tuple(features.shape)
            raise LayerError(
                f"{self.name} reads maps with their channels first, and the layer {type(layer).__name__} gives "
                f"{shape}: name a convolution, or use the method gradcam, which reads tokens and channels at the end"
            )

    def _reduced(self, attribution: Tensor, images: Tensor, probe: Probe) -> Tensor:
        if self.attribution not in LAYER:
            return super()._reduced(attribution, images, probe)
        size, prefix = images.shape[-2:], prefix_tokens(probe.model)
        first = isinstance(self.layer, CONVOLUTIONS) or self.attribution in CHANNELS_FIRST
        coarse = sum_channels(as_grid(attribution, len(images), size, prefix, channels_first=first))
        return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def Captum(attribution: str, *, layer: Layer = None, seed: int = 0, **options: Any) -> Attributed:
    """An attribution of Captum as a configured method, `captum:NAME`.

    Options are Captum's own, for its constructor or for `attribute`, and the same for all images:
    `Captum("Occlusion", sliding_window_shapes=(1, 3, 3))`.
    """
    kind = method_class(attribution)
    if layer is None:
        return kind(options, seed)
    if not takes_layer(kind):
        raise InputError(f"{kind.name} takes no layer: leave layer= out")
    return kind(options, seed, layer)  # type: ignore[call-arg]  # the field was just looked for


@cache
def method_class(name: str) -> type[Attributed]:
    """The method `captum:NAME`."""
    known = sorted({*INPUT, *LAYER} & set(attr.__all__))
    if name not in known:
        names = [f"captum:{each}" for each in known]
        if name in attr.__all__:
            raise UnknownNameError(f"captum:{name} is no method: {why_not(name)}; known: {', '.join(names)}")
        raise unknown_name_error("method", f"captum:{name}", names)
    base = LayerAttributed if takes(name, "__init__", "layer") else Attributed
    about = f"Captum's {name}, Σ_channels |attribution|."
    return type(name, (base,), {"name": f"captum:{name}", "attribution": name, "__doc__": about})
