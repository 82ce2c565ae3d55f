"""Images, maps and masks of any type, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from agop.errors import InputError
from agop.pictures.heat import Picture, pixels

Map = NDArray[np.float64]
Mask = NDArray[np.bool_]


def picture_of(image: Any) -> Picture:
    """Picture (H,W,3) of a tensor (C,H,W), an array (H,W) or (H,W,C), or a PIL image.

    Bytes and values in 0..1 keep their scale. Other values are scaled: the minimum is black, the maximum white.
    """
    channels = _channels(image)
    if channels.dtype in (torch.uint8, torch.bool):
        white = 255.0 if channels.dtype == torch.uint8 else 1.0
    elif bool(((channels >= 0) & (channels <= 1)).all()):
        white = 1.0
    else:
        return np.asarray(pixels(channels[None])[0])
    return np.asarray(pixels(channels[None], [0.0], [white])[0])


def map_of(values: Any, picture: Picture, name: str = "map") -> Map:
    """Map (H,W) as float64; raises unless it has the picture's size and is non-negative."""
    saliency = _numbers(values, name)
    if saliency.shape != picture.shape[:2]:
        raise InputError(f"{name} has shape {saliency.shape}, its image {picture.shape[:2]}: pass a map (H,W)")
    if (saliency < 0).any():
        lowest = np.nanmin(saliency)
        raise InputError(f"{name} has values down to {lowest:.3g}: pass absolute values or the positive part")
    return saliency


def mask_of(values: Any, picture: Picture) -> Mask | None:
    """Mask (H,W), true where the values aren't 0; None stays None."""
    if values is None:
        return None
    mask = _numbers(values, "mask")
    if mask.shape != picture.shape[:2]:
        raise InputError(f"mask has shape {mask.shape}, its image {picture.shape[:2]}: pass a mask (H,W)")
    return np.asarray(mask != 0)


def map_problem(saliency: Map) -> str | None:
    """Why a map can't be drawn, or None."""
    if not np.isfinite(saliency).all():
        return "not finite"
    return None if saliency.any() else "all zero"


def _channels(image: Any) -> Tensor:
    """Image as a tensor (C,H,W) of uint8, bool or float64."""
    channels, shape = (image.detach().cpu(), "(C,H,W)") if isinstance(image, Tensor) else (_array(image), "(H,W,3)")
    if channels.ndim != 3 or channels.numel() == 0:
        hint = ", for example image[0]" if channels.ndim == 4 and len(channels) == 1 else ""
        raise InputError(f"image has shape {tuple(channels.shape)}: pass one image {shape}{hint}")
    return channels if channels.dtype in (torch.uint8, torch.bool) else channels.double()


def _array(image: Any) -> Tensor:
    """Channels (C,H,W) of an array (H,W), (H,W,1), (H,W,3) or (H,W,4), or of a PIL image; alpha is dropped."""
    array = np.array(image.convert("RGB") if isinstance(image, Image.Image) else image)
    if array.dtype.kind not in "buif":
        raise InputError(f"image is a {type(image).__name__}: pass a tensor (C,H,W), an array (H,W,3) or a PIL image")
    array = array if array.dtype in (np.uint8, np.bool_) else array.astype(np.float64)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        raise InputError(f"image has shape {array.shape}: pass an array (H,W,3) or a tensor (C,H,W)")
    return torch.from_numpy(array).movedim(-1, 0)[:3] if array.ndim == 3 else torch.from_numpy(array)


def _numbers(values: Any, name: str) -> Map:
    """Values as a float64 array, from any device or type."""
    if isinstance(values, Tensor):
        return np.asarray(values.detach().cpu().double().numpy())
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is a {type(values).__name__}: pass a tensor or an array (H,W)") from None
