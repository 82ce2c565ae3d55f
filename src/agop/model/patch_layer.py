"""The layer of the patch matrix: its outputs o_p = W·patch_p at each position p, and gradients with respect to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import LayerError
from agop.model.captured import Outputs, captured
from agop.model.feature_grid import as_grid, prefix_tokens
from agop.model.layers import Layer, layer_candidates, named_layer, tensor_of
from agop.model.preparing import folded_scale
from agop.model.probe import Probe, at_least_float32, unwrapped


class PatchLayer:
    """A layer by name or as a module of the model, or by default the first convolution that the model calls.

    `name` is None until the first forward pass has called a convolution. If a layer is called several times, the last
    call counts.
    """

    def __init__(self, model: nn.Module, layer: Layer = None) -> None:
        self.name = None if layer is None else named_layer(unwrapped(model), layer)[0]

    @contextmanager
    def watched(self, model: nn.Module) -> Iterator[Outputs]:
        """The layer's output in the last forward pass of the block. Empty if the model has no convolution."""
        if self.name is None:
            convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
            with captured(convolutions, lambda output: not outputs and _is_map(output)) as outputs:
                yield outputs
            self.name = next((name for name, module in model.named_modules() if module in outputs), None)
        else:
            layer = model.get_submodule(self.name)
            with captured([layer]) as outputs:
                yield outputs
            if not tensor_of(layer, outputs).requires_grad:
                raise LayerError(f"the output of layer {self.name!r} doesn't depend on the images: give another layer")

    def deltas(self, model: nn.Module, gradients: Tensor, images: Tensor) -> Tensor:
        """Gradients (N,D,h,w) with respect to W·patch, from those with respect to the layer's output."""
        layer = model.get_submodule(self.name or "")
        scale = folded_scale(layer)
        grid = feature_grid(model, layer, gradients, images)
        return grid if scale is None else grid * scale.to(grid)[:, None, None]


def first_convolution(probe: Probe, image: Tensor) -> nn.Module | None:
    """The patch matrix's default layer for one image (1,C,H,W); None if the model has no convolution."""
    layer = PatchLayer(probe.model)
    with layer.watched(probe.model):
        probe.forward(probe.placed(image).requires_grad_())
    return None if layer.name is None else probe.model.get_submodule(layer.name)


def feature_grid(model: nn.Module, layer: nn.Module, features: Tensor, images: Tensor) -> Tensor:
    """A layer's output, or gradients of its shape, as maps (N,D,h,w), without class and register tokens."""
    prefix = prefix_tokens(model) if features.ndim == 3 else None
    return as_grid(features, len(images), images.shape[-2:], prefix, channels_first=isinstance(layer, nn.Conv2d))


def patch_outputs(probe: Probe, images: Tensor, layer: nn.Module) -> tuple[Tensor, torch.Size]:
    """W·patch (N,D,h,w) of a convolution or linear layer, without bias; the output of another layer. Its input's shape.

    The model runs only up to the layer's first call.
    """
    calls = [_first_call(probe, part, layer) for part in probe.parts(images)]
    features = torch.cat([feature_grid(probe.model, layer, output, images[: len(output)]) for _, output in calls])
    return _without_bias(layer, features.to(at_least_float32(features.dtype))), calls[0][0]


class _Reached(BaseException):  # not an Exception: a model's forward pass may catch those
    def __init__(self, shape: torch.Size, output: Tensor) -> None:
        super().__init__()
        self.shape, self.output = shape, output


def _first_call(probe: Probe, images: Tensor, layer: nn.Module) -> tuple[torch.Size, Tensor]:
    """Shape of the layer's input, and its output."""

    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        shape = next((value.shape for value in inputs if isinstance(value, Tensor)), torch.Size())
        raise _Reached(shape, tensor_of(module, {module: first}))

    handle = layer.register_forward_hook(stop)
    try:
        # With gradients, as when S was collected: without, torch's transformer layers don't call their parts.
        probe.forward(probe.placed(images).requires_grad_())
    except _Reached as reached:
        return reached.shape, reached.output.detach()
    finally:
        handle.remove()
    raise LayerError(f"the layer {type(layer).__name__} wasn't called in the forward pass: give another one")


def _without_bias(layer: nn.Module, outputs: Tensor) -> Tensor:
    """Outputs (N,D,h,w) of a convolution or linear layer minus its bias, before a batch norm folded into it."""
    bias = layer.bias if isinstance(layer, (nn.Conv2d, nn.Linear)) else None
    if bias is not None:
        outputs = outputs - bias.detach().to(outputs)[:, None, None]
    inverse = _inverse_scale(layer)
    return outputs if inverse is None else outputs * inverse.to(outputs)[:, None, None]


def _inverse_scale(layer: nn.Module) -> Tensor | None:
    """Factors (D,) that undo a folded batch norm, 0 for a channel that it switches off: S is 0 there."""
    scale = folded_scale(layer)
    return None if scale is None else torch.where(scale == 0, 0.0, 1 / scale)


def convolution_weight(layer: nn.Conv2d) -> Tensor:
    """Weights (D,C,kh,kw) in float64, before a batch norm that was folded into them, with zeros between groups."""
    weight, inverse = layer.weight.detach().double().cpu(), _inverse_scale(layer)
    if inverse is not None:
        weight = weight * inverse.to(weight)[:, None, None, None]
    if layer.groups == 1:
        return weight
    full = weight.new_zeros(layer.out_channels, layer.in_channels, *weight.shape[2:])
    outputs, inputs = layer.out_channels // layer.groups, layer.in_channels // layer.groups
    for group in range(layer.groups):
        rows = slice(group * outputs, (group + 1) * outputs)
        full[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return full


def no_convolution_error(model: nn.Module) -> LayerError:
    """The error for a model without a default layer."""
    return LayerError(
        "the model has no convolution, so there is no patch matrix: name a layer that returns maps or tokens, "
        f"agop.fit(model, loader, layer=…); {layer_candidates(model)}"
    )


def _is_map(output: Any) -> bool:
    """True for maps (N,D,h,w) larger than 1×1 that depend on the image."""
    return isinstance(output, Tensor) and output.requires_grad and output.ndim == 4 and output.shape[2:].numel() > 1
