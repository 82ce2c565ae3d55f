"""GradCAM's default layer: the last block with a map, or in a token model the last norm of the patches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import LayerError
from agop.model.captured import captured
from agop.model.feature_grid import CONVOLUTIONS, as_grid, prefix_tokens, token_grid
from agop.model.probe import Probe, derivatives
from agop.model.targets import predicted


def default_layer(probe: Probe, image: Tensor) -> nn.Module:
    """The block of the last convolution with a map, or in a transformer the last norm whose patches have a gradient."""
    last, output = last_layer(probe, image)
    return _block(probe, image, last, output.shape) if isinstance(last, CONVOLUTIONS) else last


def last_layer(probe: Probe, image: Tensor) -> tuple[nn.Module, Tensor]:
    """The last convolution with a map, or in a transformer the last norm whose patches have a gradient; its output."""
    with captured(m for m in probe.model.modules() if isinstance(m, CONVOLUTIONS) or _norms_tokens(m)) as outputs:
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
    last = useful[-2] if maps[:2] == [False, True] else useful[-1]
    return last, outputs[last]


def _block(probe: Probe, image: Tensor, convolution: nn.Module, shape: torch.Size) -> nn.Module:
    """The last module, in order of execution, whose map is of the convolution's size, from the convolution on.

    This is its norm, its activation, or the block that adds the shortcut. A pooled map would be coarser.
    """

    def same_size(output: Any) -> bool:
        return (
            isinstance(output, Tensor)
            and output.requires_grad
            and output.ndim == 4
            and (len(output), *output.shape[2:]) == (len(image), *shape[2:])
        )

    # A scripted module takes no hooks.
    inside = [m for m in probe.model.modules() if m is not probe.model and not isinstance(m, torch.jit.ScriptModule)]
    with captured(inside, same_size) as outputs:
        logits = probe.forward(probe.placed(image).requires_grad_())
    modules = list(outputs)
    candidates = modules[modules.index(convolution) :]
    gradients = derivatives(logits, predicted(logits), [outputs[m] for m in candidates])
    useful = [
        m for m, g in zip(candidates, gradients, strict=True)
        if m is convolution or (g is not None and as_grid(g, 1, image.shape[-2:]) is g)
    ]  # fmt: skip
    return useful[-1]


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
