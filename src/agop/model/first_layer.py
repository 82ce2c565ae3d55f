"""The first layer: the convolution or patch embedding that reads the image, and the pixels that its patches contain."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.model.probe import Probe, probing


def first_layer_name(model: nn.Module, image: Tensor) -> str | None:
    """Name of the first layer for one image (1,C,H,W); None if the model has no such layer."""
    with probing(model) as probe:
        layer = first_layer(probe, image)
        return next((name for name, module in probe.model.named_modules() if module is layer), None)


def first_layer(probe: Probe, image: Tensor) -> nn.Conv2d | None:
    """The convolution that is called first with an input of the image's (1,C,H,W) height and width, if there is one."""
    called: list[nn.Conv2d] = []

    def note(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, nn.Conv2d) and inputs and _sides(inputs[0]) == _sides(image):
            called.append(module)

    with torch.no_grad(), ExitStack() as handles:
        for module in probe.model.modules():
            if isinstance(module, nn.Conv2d):
                handles.callback(module.register_forward_pre_hook(note).remove)
        probe.forward(probe.placed(image))
    return called[0] if called else None


def mean_over_patches(values: Tensor, layer: nn.Conv2d, size: torch.Size) -> Tensor:
    """Maps (N,H,W): the mean of the values (N,h,w) of all patches of the layer that contain the pixel.

    0 for a pixel that is in no patch: the layer doesn't read it.
    """
    both = torch.stack([values, torch.ones_like(values)], dim=1)
    taps = torch.ones(2, 1, *layer.kernel_size, dtype=values.dtype, device=values.device)
    spread = functional.conv_transpose2d(both, taps, stride=layer.stride, dilation=layer.dilation, groups=2)
    top, left = (_before(layer, side, values.shape[1 + side], size[side]) for side in (0, 1))
    bottom, right = (size[0] + top - spread.shape[2], size[1] + left - spread.shape[3])
    sums, counts = functional.pad(spread, (-left, right, -top, bottom)).unbind(dim=1)
    return sums / counts.clamp_min(1)


def _before(layer: nn.Conv2d, side: int, patches: int, pixels: int) -> int:
    """Padding above (side 0) or left of (side 1) the image.

    A subclass may pad in its forward pass, which shows in the number of patches: "same" padding, then.
    """
    stride, reach = layer.stride[side], layer.dilation[side] * (layer.kernel_size[side] - 1)
    if not isinstance(layer.padding, str):
        padding = layer.padding[side]
        if (pixels + 2 * padding - reach - 1) // stride + 1 == patches:
            return padding
    return max(0, (patches - 1) * stride + reach + 1 - pixels) // 2


def _sides(images: Tensor) -> list[int]:
    """Number, height and width of images, or of a layer's input."""
    return [len(images), *images.shape[2:]]
