"""From gradients to maps, and from maps to pictures: the one place where channels are reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a report draws with these colours, and never imports torch
    from torch import Tensor


# Every 32nd colour of matplotlib's inferno: perceptually uniform, and monotone in lightness.
INFERNO = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip
_INFERNO = np.array(INFERNO, dtype=np.float64)

Picture = NDArray[np.uint8]


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
    values = images.detach().double().cpu().numpy()
    low, high = (
        _channels(end) if end is not None else extreme(np.nan_to_num(values, nan=0.0))
        for end, extreme in ((black, np.min), (white, np.max))
    )
    shown = np.nan_to_num((values - low) / np.maximum(high - low, 1e-12), nan=0.0).clip(0, 1)
    if images.shape[1] != 3:
        shown = np.broadcast_to(shown.mean(axis=1, keepdims=True), (len(shown), 3, *shown.shape[2:]))
    return _bytes(255 * shown.transpose(0, 2, 3, 1))


def _channels(values: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)[:, None, None]


def _bytes(colours: NDArray[np.floating]) -> Picture:
    return np.asarray(colours.round(), dtype=np.uint8)
