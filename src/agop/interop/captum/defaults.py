"""Captum's attributions by name, and what they need to be told that Captum does not know by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Of the inputs, and of a layer; `why_not` tells of what is not here.
INPUT = (
    "Deconvolution", "DeepLift", "DeepLiftShap", "FeatureAblation", "GradientShap", "GuidedBackprop", "GuidedGradCam",
    "InputXGradient", "IntegratedGradients", "KernelShap", "LRP", "Lime", "Occlusion", "Saliency",
    "ShapleyValueSampling", "ShapleyValues",
)  # fmt: skip
LAYER = (
    "InternalInfluence", "LayerActivation", "LayerConductance", "LayerDeepLift", "LayerDeepLiftShap",
    "LayerFeatureAblation", "LayerGradCam", "LayerGradientShap", "LayerGradientXActivation",
    "LayerIntegratedGradients", "LayerLRP",
)  # fmt: skip
# They draw anew for every image: one at a time from the same seed, an image's map does not depend on its neighbours.
DRAWS_BY_IMAGE = ("GradientShap", "KernelShap", "LayerGradientShap", "Lime")
# They take dimension 1 of what a layer gives for its channels.
CHANNELS_FIRST = ("GuidedGradCam", "LayerGradCam")
# Of these the baselines are a distribution, drawn from or averaged over for each image.
_MANY_BASELINES = ("DeepLiftShap", "GradientShap", "LayerDeepLiftShap", "LayerGradientShap")
_PATCHES = 8


def why_not(name: str) -> str:
    """Why something that Captum has is no method of one image."""
    if name == "NoiseTunnel":
        return "it wraps another attribution: take smoothgrad, or call it in Captum on agop.interop.captum.AGOPWeighted"
    if name.startswith("Neuron"):
        return "it explains a neuron, not a class: call it in Captum"
    if name.endswith("FeaturePermutation"):
        return "it explains an image by the images around it: take captum:FeatureAblation"
    return "it attributes no image by itself"


def defaults(name: str, images: Tensor) -> dict[str, Any]:
    """The options of an attribution for images (N,C,H,W), of which the first decides: given, the others fall away."""
    if name == "Occlusion":
        return _windows(images)
    if name in ("GradientShap", "LayerGradientShap"):
        return {"baselines": torch.zeros_like(images[:1])}
    if name in ("DeepLiftShap", "LayerDeepLiftShap"):
        # Captum refuses a single one.
        return {"baselines": torch.zeros_like(images[:1]).repeat(2, 1, 1, 1)}
    if name in ("FeatureAblation", "ShapleyValueSampling"):
        return {"feature_mask": patches(images)}
    if name in ("KernelShap", "Lime"):
        grid = patches(images)
        # Captum's 25 samples would be fewer than the patches whose weights are fitted to them.
        return {"feature_mask": grid, "n_samples": 4 * (int(grid.max()) + 1)}
    return {}


def patches(images: Tensor) -> Tensor:
    """A feature mask (1,C,H,W): the image in a grid of at most 8×8 patches, numbered from 0, all channels alike."""
    places = []
    for side in images.shape[-2:]:
        count = min(_PATCHES, side)
        places.append(torch.arange(side, device=images.device) * count // side)
    rows, columns = places
    grid = rows[:, None] * (int(columns.max()) + 1) + columns
    return grid.expand(1, images.shape[1], -1, -1).contiguous()


def _windows(images: Tensor) -> dict[str, Any]:
    """Windows of an eighth of the sides, moved by half of that: at most 225 places whatever the size."""
    _, channels, *sides = images.shape
    window = [min(side, max(2, -(-side // _PATCHES))) for side in sides]
    steps = [max(1, side // 2) for side in window]
    return {"sliding_window_shapes": (channels, *window), "strides": (channels, *steps)}


def several(name: str, options: Mapping[str, Any]) -> dict[str, int]:
    """The options that hold more than one image, and how many: of a part of the images Captum would take the wrong."""
    found = {}
    for option in ("feature_mask",) if name in _MANY_BASELINES else ("baselines", "feature_mask"):
        given = options.get(option)
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, Tensor) and value.ndim == 4 and len(value) > 1:
                found[option] = len(value)
    return found


def copies(name: str, options: dict[str, Any]) -> int:
    """How many rows of a pass an image takes."""
    if "DeepLiftShap" in name:
        return 2 * len(options["baselines"])
    if "GradientShap" in name:
        return int(options.get("n_samples", 5))
    return 2 if "DeepLift" in name or name == "LayerConductance" else 1
