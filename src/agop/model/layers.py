"""The layer that GradCAM uses, by name, as a module or by default, and its feature maps and gradients."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from agop.errors import LayerError, warn
from agop.model.captured import Outputs, captured
from agop.model.default_layer import default_layer
from agop.model.feature_grid import CONVOLUTIONS, as_grid, prefix_tokens
from agop.model.preparing import is_folded
from agop.model.probe import Probe, at_least_float32, derivative, probing

Layer = str | nn.Module | None
# A map with fewer rows or columns is coarse.
COARSE_BELOW = 7


@dataclass(frozen=True)
class FeatureMaps:
    """A layer's activations and the gradients of the target logits with respect to them, both (N,D,h,w)."""

    activations: Tensor
    gradients: Tensor


def layer_name(model: nn.Module, image: Tensor) -> str:
    """Name of GradCAM's default layer for one image (1,C,H,W)."""
    with probing(model) as probe:
        layer = default_layer(probe, image)
        modules: dict[str, nn.Module] = dict(probe.model.named_modules())
    return _name_of(layer, modules)


def named_layer(model: nn.Module, layer: str | nn.Module) -> tuple[str, nn.Module]:
    """Name and module of a layer. Raises LayerError, which lists candidates, if the model has no such layer."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if isinstance(layer, str):
        if layer not in modules or not layer:
            raise LayerError(f"the model has no layer {layer!r}: {layer_candidates(model, layer)}")
        return layer, modules[layer]
    if not any(other is layer for other in modules.values()):
        raise LayerError(f"the layer {type(layer).__name__} is not part of the model: {layer_candidates(model)}")
    return _name_of(layer, modules), layer


def layer_for(probe: Probe, image: Tensor, layer: Layer) -> nn.Module:
    """The layer's module, or the default. Warns if the map is coarse."""
    name, module = named_layer(probe.model, default_layer(probe, image) if layer is None else layer)
    if is_folded(module):
        warn(
            f"layer {name!r} of this prepared model returns the output of its batch norm: for that of the convolution, "
            f"use prepare(model, keep=[{name!r}])"
        )
    _warn_if_coarse(probe, image, module, name)
    return module


def feature_maps(probe: Probe, images: Tensor, targets: Tensor | None, layer: Layer) -> FeatureMaps:
    """Activations and gradients at the layer's last call, for each image's target (predicted class if None)."""
    if not isinstance(layer, nn.Module):
        layer = layer_for(probe, images[:1], layer)
    if probe.mixes_samples and len(images) > 1:
        single = [None] * len(images) if targets is None else torch.split(targets, 1)
        parts = [feature_maps(probe, *part, layer) for part in zip(probe.parts(images), single, strict=True)]
        return FeatureMaps(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(FeatureMaps)))
    with captured([layer]) as outputs:
        logits = probe.forward(probe.placed(images).requires_grad_())
    activations = tensor_of(layer, outputs)
    gradients = derivative(logits, probe.checked(targets, logits.detach()), activations, probe.output)
    size, dtype, prefix = images.shape[-2:], at_least_float32(activations.dtype), prefix_tokens(probe.model)
    first = isinstance(layer, CONVOLUTIONS)
    both = [part.to(dtype) for part in (activations.detach(), gradients)]
    return FeatureMaps(*(as_grid(part, len(images), size, prefix, channels_first=first) for part in both))


def output_of(probe: Probe, image: Tensor, layer: nn.Module) -> Tensor:
    """Output of the layer's last call for one image (1,C,H,W), in its own shape."""
    with torch.no_grad(), captured([layer]) as outputs:
        probe.forward(probe.placed(image))
    return tensor_of(layer, outputs)


def map_size(probe: Probe, image: Tensor, layer: nn.Module) -> tuple[int, int]:
    """Rows and columns of the layer's map for one image (1,C,H,W)."""
    features, prefix = output_of(probe, image, layer), prefix_tokens(probe.model)
    grid = as_grid(features, 1, image.shape[-2:], prefix, channels_first=isinstance(layer, CONVOLUTIONS))
    return grid.shape[2], grid.shape[3]


def _name_of(layer: nn.Module, modules: dict[str, nn.Module]) -> str:
    return next(name for name, module in modules.items() if module is layer)


def tensor_of(layer: nn.Module, outputs: Outputs) -> Tensor:
    """The layer's output as a tensor. Raises LayerError if it wasn't called or returned something else."""
    if layer not in outputs:
        raise LayerError(f"the layer {type(layer).__name__} wasn't called in the forward pass: give another one")
    if not isinstance(outputs[layer], Tensor):
        kind = type(outputs[layer]).__name__
        raise LayerError(f"the layer {type(layer).__name__} returns a {kind}, not a map: give a layer inside it")
    return outputs[layer]  # type: ignore[no-any-return]


def _warn_if_coarse(probe: Probe, image: Tensor, layer: nn.Module, name: str) -> None:
    rows, columns = map_size(probe, image, layer)
    if min(rows, columns) < COARSE_BELOW:
        warn(
            f"the map of layer {name!r} is only {rows}×{columns} for {image.shape[-2]}×{image.shape[-1]} images: "
            "GradCAM can't localise finer than that; name an earlier layer"
        )


def layer_candidates(model: nn.Module, near: str = "") -> str:
    """Names of layers for an error message: convolutions if there are any, and the name most like `near`."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    names = [name for name, module in modules.items() if isinstance(module, CONVOLUTIONS)]
    names = names or [name for name in modules if name]
    close = get_close_matches(near, [name for name in modules if name], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    ellipsis = "… " if len(names) > 12 else ""
    return f"{hint}candidates: {ellipsis}{', '.join(names[-12:])}"
