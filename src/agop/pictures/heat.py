"""Maps as colours, a map over its image, and a model's input as an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a report uses these colours and never imports torch
    from torch import Tensor


# Stops at equal distances. Inferno, viridis and gray grow lighter with the value; jet doesn't, but many know it.
COLOUR_MAPS = {
    "inferno": (
        (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
        (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
    ),
    "viridis": (
        (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
        (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
    ),
    "jet": (
        (0, 0, 128), (0, 0, 255), (0, 128, 255), (0, 255, 255), (128, 255, 128),
        (255, 255, 0), (255, 128, 0), (255, 0, 0), (128, 0, 0),
    ),
    "gray": ((0, 0, 0), (255, 255, 255)),
}  # fmt: skip

Picture = NDArray[np.uint8]


def heat(saliency: NDArray[np.floating], top: float | None = None, colours: str = "inferno") -> Picture:
    """Colours (H,W,3) of a map (H,W). `top` is the value of the brightest colour; default: the map's maximum."""
    stops = np.array(COLOUR_MAPS[colours], dtype=np.float64)
    strength, steps = _strength(saliency, top), np.linspace(0, 1, len(stops))
    return _bytes(np.stack([np.interp(strength, steps, channel) for channel in stops.T], axis=-1))


def overlay(
    picture: Picture,
    saliency: NDArray[np.floating],
    top: float | None = None,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Picture:
    """Colours of a map (H,W) over its image (H,W,3), which is dimmed to gray. Larger values are more opaque."""
    cover = opacity * (0.15 + 0.85 * _strength(saliency, top)[..., None])
    gray = picture.mean(axis=-1, keepdims=True) * 0.7
    return _bytes((1 - cover) * gray + cover * heat(saliency, top, colours))


def pixels(images: Tensor, black: Sequence[float] | None = None, white: Sequence[float] | None = None) -> Picture:
    """Images (N,H,W,3) in bytes, of a model's inputs (N,C,H,W).

    `black` and `white` are the values per channel that become 0 and 255; default: the smallest and the largest value.
    """
    values = images.detach().double().cpu().numpy()
    low, high = (
        _channels(end) if end is not None else extreme(np.nan_to_num(values, nan=0.0))
        for end, extreme in ((black, np.min), (white, np.max))
    )
    scaled = np.nan_to_num((values - low) / np.maximum(high - low, 1e-12), nan=0.0).clip(0, 1)
    if images.shape[1] != 3:
        scaled = np.broadcast_to(scaled.mean(axis=1, keepdims=True), (len(scaled), 3, *scaled.shape[2:]))
    return _bytes(255 * scaled.transpose(0, 2, 3, 1))


def signed_picture(values: NDArray[np.floating]) -> Picture:
    """Picture (H,W,3) of signed values (C,H,W), gray where they are 0. The largest absolute value becomes white.

    Of other than one or three channels it shows their mean.
    """
    shown = values if len(values) in (1, 3) else values.mean(axis=0, keepdims=True)
    extreme = shown.flat[np.abs(shown).argmax()]
    scaled = 0.5 + 0.5 * shown / (extreme or 1)
    return _bytes(255 * np.broadcast_to(scaled, (3, *scaled.shape[1:])).transpose(1, 2, 0))


def _strength(saliency: NDArray[np.floating], top: float | None) -> NDArray[np.floating]:
    """The map divided by `top`, in 0..1; zeros if it isn't above 0."""
    top = float(saliency.max()) if top is None else top
    return np.clip(saliency / top, 0, 1) if top > 0 else np.zeros_like(saliency)


def _channels(values: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)[:, None, None]


def _bytes(colours: NDArray[np.floating]) -> Picture:
    return np.asarray(colours.round(), dtype=np.uint8)
