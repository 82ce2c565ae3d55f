"""What users give to be drawn, as arrays: pictures, maps and masks."""

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
    """The picture (H,W,3) of a tensor (C,H,W), an array (H,W) or (H,W,C), or a PIL image.

    Bytes and values in 0..1 are taken as they are; other values from their smallest, black, to their largest, white.
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
    """The map (H,W), if it is one of this picture (H,W,3) and not negative anywhere."""
    found = _numbers(values, name)
    if found.shape != picture.shape[:2]:
        raise InputError(
            f"{name} has shape {found.shape}, its image {picture.shape[:2]}: give a map (H,W) of this image"
        )
    if (found < 0).any():
        raise InputError(f"{name} goes down to {np.nanmin(found):.3g}: give its absolute or its positive part")
    return found


def mask_of(values: Any, picture: Picture) -> Mask | None:
    """The mask (H,W), true wherever it is not 0; None stays None."""
    if values is None:
        return None
    found = _numbers(values, "mask")
    if found.shape != picture.shape[:2]:
        raise InputError(
            f"the mask has shape {found.shape}, its image {picture.shape[:2]}: give a mask (H,W) of this image"
        )
    return np.asarray(found != 0)


def nothing_to_see(saliency: Map) -> str | None:
    """Why a map cannot be shown, or None."""
    if not np.isfinite(saliency).all():
        return "not finite"
    return None if saliency.any() else "all zero"


def _channels(image: Any) -> Tensor:
    """The image as a tensor (C,H,W), of bytes or float64."""
    found, wanted = (image.detach().cpu(), "(C,H,W)") if isinstance(image, Tensor) else (_array(image), "(H,W,3)")
    if found.ndim != 3 or found.numel() == 0:
        hint = " (of a batch of one, image[0])" if found.ndim == 4 and len(found) == 1 else ""
        raise InputError(f"the image has shape {tuple(found.shape)}: give one image {wanted}{hint}")
    return found if found.dtype in (torch.uint8, torch.bool) else found.double()


def _array(image: Any) -> Tensor:
    """The channels (C,H,W) of an array (H,W) or (H,W,1 or 3 or 4), or of a PIL image; transparency is left out."""
    array = np.array(image.convert("RGB") if isinstance(image, Image.Image) else image)
    if array.dtype.kind not in "buif":
        raise InputError(f"the image is a {type(image).__name__}: give a tensor (C,H,W), an array (H,W,3) or a picture")
    array = array if array.dtype in (np.uint8, np.bool_) else array.astype(np.float64)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        raise InputError(f"the image has shape {array.shape}: give an array (H,W,3), or a tensor (C,H,W)")
    return torch.from_numpy(array).movedim(-1, 0)[:3] if array.ndim == 3 else torch.from_numpy(array)


def _numbers(values: Any, name: str) -> Map:
    """Numbers as float64, wherever they were."""
    if isinstance(values, Tensor):
        return np.asarray(values.detach().cpu().double().numpy())
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is a {type(values).__name__}: give a tensor or an array (H,W)") from None
