"""Feature maps (N,D,h,w) from a layer's output: maps with channels first or last, or tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from agop.errors import LayerError

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_MOST_PREFIX_TOKENS = 16


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
