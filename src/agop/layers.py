"""The layer that GradCAM weighs: found by name, by module or by looking; its map and gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import LayerError, warn
from agop.gradients import Probe, derivative
from agop.saliency import wide
from agop.targets import predicted, selection

Layer = str | nn.Module | None
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_FINE = 7
_MOST_PREFIX_TOKENS = 16


@dataclass(frozen=True)
class FeatureMaps:
    """A layer's activations and the target logits' gradients there, both (N,D,h,w)."""

    activations: Tensor
    gradients: Tensor


def layer_for(probe: Probe, image: Tensor, layer: Layer) -> nn.Module:
    """The module to weigh: the given one, or the last with a map larger than 1×1; warns if coarse."""
    modules = dict(probe.model.named_modules())
    if layer is None:
        found = _found(probe, image, modules)
    elif isinstance(layer, str):
        if layer not in modules or not layer:
            raise LayerError(f"the model has no layer {layer!r}: {_candidates(modules, layer)}")
        found = modules[layer]
    else:
        found = layer
        if not any(module is layer for module in modules.values()):
            raise LayerError(f"the layer {type(layer).__name__} is not part of the model: {_candidates(modules)}")
    _warn_if_coarse(probe, image, found, modules)
    return found


def feature_maps(probe: Probe, images: Tensor, targets: Tensor | None, layer: Layer) -> FeatureMaps:
    """The layer's activations and gradients, at its last call, for each image's target, predicted if None."""
    if not isinstance(layer, nn.Module):
        layer = layer_for(probe, images[:1], layer)
    with _captured([layer]) as outputs:
        logits = probe.forward(probe.placed(images).requires_grad_())
    activations = _tensor_of(layer, outputs)
    gradients = derivative(logits, probe.checked(targets, logits.detach()), activations)
    size, dtype = images.shape[-2:], wide(activations.dtype)
    return FeatureMaps(
        as_grid(activations.detach().to(dtype), len(images), size), as_grid(gradients.to(dtype), len(images), size)
    )


def as_grid(features: Tensor, samples: int, size: torch.Size) -> Tensor:
    """Features (N,D,h,w): maps as they are, tokens (N,T,D) laid out as the image's patches stand."""
    if features.ndim not in (3, 4) or len(features) != samples:
        shape = tuple(features.shape)
        raise LayerError(f"the layer gives {shape} for {samples} images, neither maps nor tokens: give another layer")
    if features.ndim == 4:
        return features
    rows, columns = token_grid(features.shape[1], size)
    patches = features[:, features.shape[1] - rows * columns :]
    return patches.transpose(1, 2).reshape(samples, -1, rows, columns)


def token_grid(tokens: int, size: torch.Size) -> tuple[int, int]:
    """Rows and columns of the patches of an image (H,W), behind as few class and register tokens as can be."""
    for patches in range(tokens, max(0, tokens - _MOST_PREFIX_TOKENS - 1), -1):
        rows = round(math.sqrt(patches * size[0] / size[1]))
        if rows and patches % rows == 0 and rows * size[1] == patches // rows * size[0]:
            return rows, patches // rows
    raise LayerError(f"{tokens} tokens do not form a grid over {size[0]}×{size[1]} pixels: give another layer")


def _found(probe: Probe, image: Tensor, modules: dict[str, nn.Module]) -> nn.Module:
    """The last convolution with a map, or in a model of tokens the last norm whose patches matter."""
    with _captured([m for m in modules.values() if isinstance(m, _CONVOLUTIONS) or _norms_tokens(m)]) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    size = image.shape[-2:]
    kept = [(m, out) for m, out in outputs.items() if isinstance(out, Tensor) and _has_map(m, out, size)]
    one = selection(logits, predicted(logits))
    reached = torch.autograd.grad(logits, [out for _, out in kept], one, allow_unused=True) if kept else ()
    # Behind the last attention only the class token reaches the logits: its norm has no patch gradient.
    useful = [
        m for (m, _), g in zip(kept, reached, strict=True)
        if g is not None and (g.ndim == 4 or bool((as_grid(g, 1, size) != 0).any()))
    ]  # fmt: skip
    if not useful:
        raise LayerError(
            "the model has no convolution with a map larger than 1×1, and no tokens, that its output depends on: "
            "name a layer with a spatial output, or use a gradient method (an exported model shows no layers)"
        )
    return useful[-1]


def _norms_tokens(module: nn.Module) -> bool:
    return any(kind in type(module).__name__ for kind in ("LayerNorm", "RMSNorm"))


def _has_map(module: nn.Module, output: Tensor, size: torch.Size) -> bool:
    """True for what an image's gradient can reach: a convolution's map, or tokens that form a grid."""
    if not output.requires_grad or len(output) != 1:
        return False
    if isinstance(module, _CONVOLUTIONS):
        return output.ndim == 4 and output.shape[-2] * output.shape[-1] > 1
    try:
        return output.ndim == 3 and math.prod(token_grid(output.shape[1], size)) > 1
    except LayerError:
        return False


def _tensor_of(layer: nn.Module, outputs: dict[nn.Module, Any]) -> Tensor:
    if layer not in outputs:
        raise LayerError(f"the layer {type(layer).__name__} took no part in the forward pass: give another one")
    if not isinstance(outputs[layer], Tensor):
        kind = type(outputs[layer]).__name__
        raise LayerError(f"the layer {type(layer).__name__} gives a {kind}, not a map: give a layer inside it")
    return outputs[layer]  # type: ignore[no-any-return]


def _warn_if_coarse(probe: Probe, image: Tensor, layer: nn.Module, modules: dict[str, nn.Module]) -> None:
    with torch.no_grad(), _captured([layer]) as outputs:
        probe.forward(probe.placed(image))
    rows, columns = as_grid(_tensor_of(layer, outputs), 1, image.shape[-2:]).shape[-2:]
    if min(rows, columns) < _FINE:
        name = next(name for name, module in modules.items() if module is layer)
        warn(
            f"the map of layer {name!r} is only {rows}×{columns} for {image.shape[-2]}×{image.shape[-1]} images: "
            "GradCAM cannot localise finer than that; name an earlier layer"
        )


def _candidates(modules: dict[str, nn.Module], near: str = "") -> str:
    names = [name for name, module in modules.items() if isinstance(module, _CONVOLUTIONS)]
    names = names or [name for name in modules if name]
    close = get_close_matches(near, [name for name in modules if name], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(names[-12:])
    return f"{hint}candidates: {'… ' if len(names) > 12 else ''}{shown}"


@contextmanager
def _captured(layers: list[nn.Module]) -> Iterator[dict[nn.Module, Any]]:
    """Fills, in order of execution, with the layers' outputs; the model goes on with copies of the tensors,
    so that an in-place activation behind a layer cannot overwrite what was captured.
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
