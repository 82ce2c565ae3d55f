"""Captum's attributions by name: `captum:DeepLift` → method class."""

from __future__ import annotations

from functools import cache
from typing import Any

from captum import attr

from agop.errors import InputError, UnknownNameError
from agop.interop.captum.methods import CaptumLayerMethod, CaptumMethod
from agop.interop.captum.options import takes
from agop.methods.base import takes_layer
from agop.model.layers import Layer
from agop.registry import unknown_name_error

_SUPPORTED = (
    "Deconvolution", "DeepLift", "DeepLiftShap", "FeatureAblation", "GradientShap", "GuidedBackprop", "GuidedGradCam",
    "InputXGradient", "IntegratedGradients", "InternalInfluence", "KernelShap", "LRP", "LayerActivation",
    "LayerConductance", "LayerDeepLift", "LayerDeepLiftShap", "LayerFeatureAblation", "LayerGradCam",
    "LayerGradientShap", "LayerGradientXActivation", "LayerIntegratedGradients", "LayerLRP", "Lime", "Occlusion",
    "Saliency", "ShapleyValueSampling", "ShapleyValues",
)  # fmt: skip


def Captum(attribution: str, *, layer: Layer = None, seed: int = 0, **options: Any) -> CaptumMethod:
    """A Captum attribution as a configured method, `captum:NAME`.

    The options are Captum's own, of its constructor or of `attribute`. They are the same for all images:
    `Captum("Occlusion", sliding_window_shapes=(1, 3, 3))`.
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
    if name not in supported:
        names = [f"captum:{each}" for each in supported]
        if name in attr.__all__:
            raise UnknownNameError(
                f"captum:{name} isn't supported, {_unsupported(name)}; supported: {', '.join(names)}"
            )
        raise unknown_name_error("method", f"captum:{name}", names)
    base = CaptumLayerMethod if takes(name, "__init__", "layer") else CaptumMethod
    about = f"Captum's {name}, Σ_channels |attribution|."
    return type(name, (base,), {"name": f"captum:{name}", "attribution": name, "__doc__": about})


def _unsupported(name: str) -> str:
    """Reason and alternative for an attribution that can't give one map per image."""
    if name == "NoiseTunnel":
        return "it wraps another attribution: use smoothgrad, or call it in Captum on agop.interop.captum.AGOPWeighted"
    if name.startswith("Neuron"):
        return "it explains a neuron instead of a class: call it in Captum"
    if name.endswith("FeaturePermutation"):
        return "its result depends on the other images of the batch: use captum:FeatureAblation"
    return "it doesn't attribute images"
