"""From gradients to maps, and from maps to pictures: the one place where channels are reduced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agop.colours import INFERNO

_INFERNO = np.array(INFERNO, dtype=np.float64)

Picture = NDArray[np.uint8]


def reduced(attribution: Tensor, weights: Tensor | None = None) -> Tensor:
    """Maps (N,H,W), non-negative: the sum over channels of |attribution (N,C,H,W)|, weighted (C,H,W)."""
    values = attribution.abs().to(wide(attribution.dtype))
    if weights is None:
        return values.sum(dim=1)
    return torch.einsum("nchw,chw->nhw", values, weights.to(values.device, values.dtype))


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype maps are kept in: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def heat(saliency: NDArray[np.floating], scale: float | None = None) -> Picture:
    """Colours (H,W,3) of a map (H,W); `scale` is the value of the brightest colour (its maximum)."""
    top = float(saliency.max()) if scale is None else scale
    place = np.clip(saliency / top, 0, 1) if top > 0 else np.zeros_like(saliency)
    steps = np.linspace(0, 1, len(_INFERNO))
    channels = [np.interp(place, steps, _INFERNO[:, channel]) for channel in range(3)]
    return _bytes(np.stack(channels, axis=-1))


def overlay(picture: Picture, saliency: NDArray[np.floating], scale: float | None = None) -> Picture:
    """The picture (H,W,3) dimmed to grey, with the map's colours where the map is strong."""
    top = float(saliency.max()) if scale is None else scale
    strength = np.clip(saliency / top, 0, 1)[..., None] if top > 0 else np.zeros((*saliency.shape, 1))
    grey = picture.mean(axis=-1, keepdims=True) * 0.7
    opacity = 0.15 + 0.85 * np.sqrt(strength)
    return _bytes((1 - opacity) * grey + opacity * heat(saliency, top))


def pixels(images: Tensor, black: Sequence[float] | None = None, white: Sequence[float] | None = None) -> Picture:
    """Pictures (N,H,W,3) of a model's images (N,C,H,W); black and white are values a channel, else the extremes."""
    values = images.detach().double().cpu()
    low, high = (
        values.nan_to_num(0).amin() if black is None else torch.tensor(black).double()[:, None, None],
        values.nan_to_num(0).amax() if white is None else torch.tensor(white).double()[:, None, None],
    )
    shown = ((values - low) / (high - low).clamp_min(1e-12)).nan_to_num(0).clamp(0, 1)
    if images.shape[1] != 3:
        shown = shown.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    return _bytes(255 * shown.permute(0, 2, 3, 1).numpy())


def _bytes(colours: NDArray[np.floating]) -> Picture:
    return np.asarray(colours.round(), dtype=np.uint8)
