"""Values of a layer's patches, as maps of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


def pixel_means(values: Tensor, layer: nn.Module, input_shape: torch.Size, size: torch.Size) -> Tensor:
    """Maps (N,H,W) of a pixel's mean over the patches that contain it, from values (N,h,w) of a layer's patches.

    The patches of a convolution are those of its input (…,H',W'), scaled bilinearly if the image has another size.
    Other layers have values at points, which are interpolated bilinearly. 0 for a pixel that is in no patch.
    """
    if isinstance(layer, nn.Conv2d) and len(input_shape) == 4:
        sums, counts = (_added(part, layer, input_shape[2:]) for part in (values, torch.ones_like(values[:1])))
        values = torch.where(counts > 0, sums / counts.clamp_min(1), 0.0)
    if values.shape[1:] == size:
        return values
    return functional.interpolate(values[:, None], tuple(size), mode="bilinear", align_corners=False)[:, 0]


def _added(values: Tensor, layer: nn.Conv2d, size: Sequence[int]) -> Tensor:
    """Sum (N,H,W) over the patches that contain each pixel: a transposed convolution with ones."""
    kernel = values.new_ones(1, 1, *layer.kernel_size)
    dilation, stride = _pair(layer.dilation), _pair(layer.stride)
    spread = functional.conv_transpose2d(values[:, None], kernel, stride=stride, dilation=dilation)[:, 0]
    margins: list[int] = []
    for axis in (1, 0):  # functional.pad starts with the last axis
        before = _padding(layer, axis, spread.shape[axis + 1], size[axis])
        margins += [-before, size[axis] - (spread.shape[axis + 1] - before)]
    return functional.pad(spread, margins)


def _padding(layer: nn.Conv2d, axis: int, reach: int, side: int) -> int:
    """Number of padded pixels before the first pixel of an axis, from the side that all patches reach over."""
    stride = _pair(layer.stride)[axis]
    if not isinstance(layer.padding, str):
        before = _pair(layer.padding)[axis]
        if 0 <= side + 2 * before - reach < stride:
            return before
    # "same", or a subclass that pads in its forward pass: in the middle, as TensorFlow does.
    return max(0, reach - side) // 2


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
