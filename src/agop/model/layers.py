"""The layer that GradCAM uses, by name, as a module or by default, and its feature maps and gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import LayerError, warn
from agop.model.probe import Probe, at_least_float32, derivative, derivatives, probing
from agop.model.targets import predicted

Layer = str | nn.Module | None
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_COARSE_BELOW = 7
_MOST_PREFIX_TOKENS = 16


@dataclass(frozen=True)
class FeatureMaps:
    """A layer's activations and the gradients of the target logits with respect to them, both (N,D,h,w)."""

    activations: Tensor
    gradients: Tensor


def layer_name(model: nn.Module, image: Tensor) -> str:
    """Name of GradCAM's default layer for one image (1,C,H,W)."""
    with probing(model) as probe:
        modules: dict[str, nn.Module] = dict(probe.model.named_modules())
        layer = _default_layer(probe, image, modules)
    return next(name for name, module in modules.items() if module is layer)


def layer_for(probe: Probe, image: Tensor, layer: Layer) -> nn.Module:
    """The layer's module, or the default: the last one with a map larger than 1×1. Warns if the map is coarse."""
    modules = dict(probe.model.named_modules())
    if layer is None:
        module = _default_layer(probe, image, modules)
    elif isinstance(layer, str):
        if layer not in modules or not layer:
            raise LayerError(f"the model has no layer {layer!r}: {_candidates(modules, layer)}")
        module = modules[layer]
    else:
        module = layer
        if not any(other is layer for other in modules.values()):
            raise LayerError(f"the layer {type(layer).__name__} is not part of the model: {_candidates(modules)}")
    _warn_if_coarse(probe, image, module, modules)
    return module


def feature_maps(probe: Probe, images: Tensor, targets: Tensor | None, layer: Layer) -> FeatureMaps:
    """Activations and gradients at the layer's last call, for each image's target (predicted class if None)."""
    if not isinstance(layer, nn.Module):
        layer = layer_for(probe, images[:1], layer)
    if probe.mixes_samples and len(images) > 1:
        single = [None] * len(images) if targets is None else torch.split(targets, 1)
        parts = [feature_maps(probe, *part, layer) for part in zip(probe.parts(images), single, strict=True)]
        return FeatureMaps(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(FeatureMaps)))
    with _captured([layer]) as outputs:
        logits = probe.forward(probe.placed(images).requires_grad_())
    activations = _tensor_of(layer, outputs)
    gradients = derivative(logits, probe.checked(targets, logits.detach()), activations)
    size, dtype, prefix = images.shape[-2:], at_least_float32(activations.dtype), prefix_tokens(probe.model)
    first = isinstance(layer, CONVOLUTIONS)
    both = [part.to(dtype) for part in (activations.detach(), gradients)]
    return FeatureMaps(*(as_grid(part, len(images), size, prefix, channels_first=first) for part in both))


def output_of(probe: Probe, image: Tensor, layer: nn.Module) -> Tensor:
    """Output of the layer's last call for one image (1,C,H,W), in its own shape."""
    with torch.no_grad(), _captured([layer]) as outputs:
        probe.forward(probe.placed(image))
    return _tensor_of(layer, outputs)


def as_grid(
    features: Tensor, samples: int, size: torch.Size, prefix: int | None = None, *, channels_first: bool = False
) -> Tensor:
    """Feature maps (N,D,h,w) from maps (N,D,h,w) or, unless channels_first, (N,h,w,D), or from tokens (N,T,D)."""
    if features.ndim not in (3, 4) or len(features) != samples:
        shape = tuple(features.shape)
        raise LayerError(f"the layer returns {shape} for {samples} images, neither maps nor tokens: give another layer")
    if features.ndim == 4:
        return features if channels_first or not _channels_last(features, size) else features.permute(0, 3, 1, 2)
    rows, columns = token_grid(features.shape[1], size, prefix)
    patches = features[:, features.shape[1] - rows * columns :]
    return patches.transpose(1, 2).reshape(samples, -1, rows, columns)


def token_grid(tokens: int, size: torch.Size, prefix: int | None = None) -> tuple[int, int]:
    """Rows and columns of the patches of an image (H,W).

    They follow `prefix` class and register tokens if the rest forms a grid, else as few such tokens as possible.
    """
    first = [tokens - prefix] if prefix is not None else []
    for patches in (*first, *range(tokens, max(0, tokens - _MOST_PREFIX_TOKENS - 1), -1)):
        rows = round(math.sqrt(max(0, patches) * size[0] / size[1]))
        if rows > 0 and patches % rows == 0 and rows * size[1] == patches // rows * size[0]:
            return rows, patches // rows
    raise LayerError(f"{tokens} tokens do not form a grid over {size[0]}×{size[1]} pixels: give another layer")


def prefix_tokens(model: nn.Module) -> int | None:
    """Number of class and register tokens before the patches, if the model has an attribute for it."""
    registers = getattr(getattr(model, "config", None), "num_register_tokens", None)
    if isinstance(registers, int):  # transformers counts the class token separately
        return registers + 1
    for module in model.modules():
        if hasattr(module, "num_prefix_tokens"):  # timm
            return module.num_prefix_tokens if isinstance(module.num_prefix_tokens, int) else None
    return None


def _channels_last(maps: Tensor, size: torch.Size) -> bool:
    """True if the first two of a map's three sides match the image's aspect ratio better than the last two."""
    first, second, third = maps.shape[1:]
    ratio = math.log(size[0] / size[1])
    return abs(math.log(first / second) - ratio) < abs(math.log(second / third) - ratio)


def _default_layer(probe: Probe, image: Tensor, modules: dict[str, nn.Module]) -> nn.Module:
    """The last convolution with a map, or in a transformer the last norm whose patch tokens reach the output."""
    with _captured([m for m in modules.values() if isinstance(m, CONVOLUTIONS) or _norms_tokens(m)]) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    size, prefix = image.shape[-2:], prefix_tokens(probe.model)
    candidates = [(m, out) for m, out in outputs.items() if isinstance(out, Tensor) and _has_map(m, out, size)]
    gradients = derivatives(logits, predicted(logits), [out for _, out in candidates]) if candidates else ()
    # After the last attention only the class token reaches the logits: the norm there has no patch gradients.
    useful = [
        m for (m, _), g in zip(candidates, gradients, strict=True)
        if g is not None and (g.ndim == 4 or bool((as_grid(g, 1, size, prefix) != 0).any()))
    ]  # fmt: skip
    if not useful:
        raise LayerError(
            "the model has no convolution with a map larger than 1×1, and no tokens, that its output depends on: "
            "name a layer with a spatial output, or use a gradient method (an exported model has no layers)"
        )
    # A single norm of maps after a convolution, as in ConvNeXt, belongs to it. Several mean: no convolutions.
    maps = [isinstance(m, CONVOLUTIONS) or outputs[m].ndim == 3 for m in reversed(useful)]
    return useful[-2] if maps[:2] == [False, True] else useful[-1]


def _norms_tokens(module: nn.Module) -> bool:
    return any(kind in type(module).__name__ for kind in ("LayerNorm", "RMSNorm"))


def _has_map(module: nn.Module, output: Tensor, size: torch.Size) -> bool:
    """True for an output with a spatial grid that depends on the image: a map, or tokens of a norm."""
    if not output.requires_grad or len(output) != 1:
        return False
    if isinstance(module, CONVOLUTIONS):
        return output.ndim == 4 and output.shape[-2] * output.shape[-1] > 1
    if output.ndim == 4:
        rows, columns = as_grid(output, 1, size).shape[-2:]
        return rows * columns > 1 and rows * size[1] == columns * size[0]
    try:
        return output.ndim == 3 and math.prod(token_grid(output.shape[1], size)) > 1
    except LayerError:
        return False


def _tensor_of(layer: nn.Module, outputs: dict[nn.Module, Any]) -> Tensor:
    if layer not in outputs:
        raise LayerError(f"the layer {type(layer).__name__} wasn't called in the forward pass: give another one")
    if not isinstance(outputs[layer], Tensor):
        kind = type(outputs[layer]).__name__
        raise LayerError(f"the layer {type(layer).__name__} returns a {kind}, not a map: give a layer inside it")
    return outputs[layer]  # type: ignore[no-any-return]


def _warn_if_coarse(probe: Probe, image: Tensor, layer: nn.Module, modules: dict[str, nn.Module]) -> None:
    features, prefix = output_of(probe, image, layer), prefix_tokens(probe.model)
    first = isinstance(layer, CONVOLUTIONS)
    rows, columns = as_grid(features, 1, image.shape[-2:], prefix, channels_first=first).shape[-2:]
    if min(rows, columns) < _COARSE_BELOW:
        name = next(name for name, module in modules.items() if module is layer)
        warn(
            f"the map of layer {name!r} is only {rows}×{columns} for {image.shape[-2]}×{image.shape[-1]} images: "
            "GradCAM can't localise finer than that; name an earlier layer"
        )


def _candidates(modules: dict[str, nn.Module], near: str = "") -> str:
    names = [name for name, module in modules.items() if isinstance(module, CONVOLUTIONS)]
    names = names or [name for name in modules if name]
    close = get_close_matches(near, [name for name in modules if name], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    ellipsis = "… " if len(names) > 12 else ""
    return f"{hint}candidates: {ellipsis}{', '.join(names[-12:])}"


@contextmanager
def _captured(layers: list[nn.Module]) -> Iterator[dict[nn.Module, Any]]:
    """The layers' outputs, filled in order of execution.

    The model continues with copies, so that an in-place activation after a layer can't overwrite the captured output.
    """
    outputs: dict[nn.Module, Any] = {}

    def capture(module: nn.Module, _: Any, output: Any) -> Any:
        outputs.pop(module, None)
        outputs[module] = output[0] if isinstance(output, tuple) and output else output
        if isinstance(output, Tensor):
            return output.clone()
        if type(output) is tuple and output and isinstance(output[0], Tensor):
            return (output[0].clone(), *output[1:])
        return None

    handles = [layer.register_forward_hook(capture) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
