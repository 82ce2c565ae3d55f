"""Norms of a layer's outputs at its patches, as maps of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import PriorError
from agop.model.patch_layer import patch_outputs
from agop.model.probe import Probe


def patch_maps(
    probe: Probe, images: Tensor, layer: nn.Module, root: Tensor | None = None, *, centred: bool = False
) -> Tensor:
    """Maps (N,H,W): mean of ‖R o_p‖ over the patches p that contain each pixel; of ‖o_p‖ without a root R (D,D).

    o_p is the layer's output without bias, with `centred` minus its mean over the image: else the patches of a flat,
    bright area are as large as those of an object. The model runs only up to the layer.
    """
    outputs, input_shape = patch_outputs(probe, images, layer)
    if centred:
        outputs = outputs - outputs.mean(dim=(2, 3), keepdim=True)
    if root is not None:
        if outputs.shape[1] != len(root):
            raise PriorError(
                f"the prior's patch matrix is {len(root)}×{len(root)}, its layer has {outputs.shape[1]} channels "
                "in this model: compute a prior for it with agop.fit"
            )
        outputs = torch.einsum("de,nehw->ndhw", root.to(outputs), outputs)
    return pixel_means(outputs.norm(dim=1), layer, input_shape, images.shape[-2:])


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
