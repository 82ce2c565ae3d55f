"""Options of Captum's attributions: which exist, and defaults for those that Captum requires."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from captum import attr
from torch import Tensor

# Set by `explain`, or they would change the form of the result.
_RESERVED = {
    "self", "forward_func", "model", "layer", "inputs", "target", "additional_forward_args", "return_convergence_delta",
    "return_input_shape", "kwargs",
}  # fmt: skip
# Their baselines are a distribution, sampled or averaged over for each image.
_BASELINE_DISTRIBUTION = ("DeepLiftShap", "GradientShap", "LayerDeepLiftShap", "LayerGradientShap")
_PATCHES = 8


def option_names(attribution: str) -> list[str]:
    """Names of the options that a user may set, of the constructor and of `attribute`."""
    names = [*_parameters(attribution, "__init__"), *_parameters(attribution, "attribute")]
    return [name for name in names if name not in _RESERVED]


def takes(attribution: str, function: str, parameter: str) -> bool:
    """True if an attribution's `__init__` or `attribute` has that parameter."""
    return parameter in _parameters(attribution, function)


def _parameters(attribution: str, function: str) -> list[str]:
    return list(inspect.signature(getattr(getattr(attr, attribution), function)).parameters)


def defaults(name: str, images: Tensor) -> dict[str, Any]:
    """Default options for images (N,C,H,W). If the user sets the first of them, the others don't apply."""
    if name == "Occlusion":
        return _windows(images)
    if name in ("GradientShap", "LayerGradientShap"):
        return {"baselines": torch.zeros_like(images[:1])}
    if name in ("DeepLiftShap", "LayerDeepLiftShap"):
        # Captum rejects a single baseline.
        return {"baselines": torch.zeros_like(images[:1]).repeat(2, 1, 1, 1)}
    if name in ("FeatureAblation", "ShapleyValueSampling"):
        return {"feature_mask": patches(images)}
    if name in ("KernelShap", "Lime"):
        grid = patches(images)
        # Captum's default of 25 samples is less than the number of patches whose weights it fits.
        return {"feature_mask": grid, "n_samples": 4 * (int(grid.max()) + 1)}
    return {}


def patches(images: Tensor) -> Tensor:
    """Feature mask (1,C,H,W): a grid of at most 8×8 patches, numbered from 0, the same in all channels."""
    indices = []
    for side in images.shape[-2:]:
        count = min(_PATCHES, side)
        indices.append(torch.arange(side, device=images.device) * count // side)
    rows, columns = indices
    grid = rows[:, None] * (int(columns.max()) + 1) + columns
    return grid.expand(1, images.shape[1], -1, -1).contiguous()


def _windows(images: Tensor) -> dict[str, Any]:
    """Windows of 1/8 of each side, moved by half a window: at most 225 positions at any image size."""
    _, channels, *sides = images.shape
    window = [min(side, max(2, -(-side // _PATCHES))) for side in sides]
    strides = [max(1, side // 2) for side in window]
    return {"sliding_window_shapes": (channels, *window), "strides": (channels, *strides)}


def multi_image_options(name: str, options: Mapping[str, Any]) -> dict[str, int]:
    """Options with more than one image, and their number. Captum would match them to the wrong images of a batch."""
    counts = {}
    for option in ("feature_mask",) if name in _BASELINE_DISTRIBUTION else ("baselines", "feature_mask"):
        value = options.get(option)
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, Tensor) and tensor.ndim == 4 and len(tensor) > 1:
                counts[option] = len(tensor)
    return counts


def rows_per_image(name: str, options: dict[str, Any]) -> int:
    """Number of rows that an image takes in a forward pass."""
    if "DeepLiftShap" in name:
        return 2 * len(options["baselines"])
    if "GradientShap" in name:
        return int(options.get("n_samples", 5))
    return 2 if "DeepLift" in name or name == "LayerConductance" else 1
