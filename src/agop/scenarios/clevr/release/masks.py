"""Masks: resized for the benchmark, resized as the release does it, and decoded from a mask image's colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import InputError

Mask = NDArray[np.bool_]
# Side of the release's ground truths.
RELEASED = 128
BACKGROUND = (64, 64, 64)
# In linear light: rounding to eight bits moves a colour by at most 0.008; random colours are about 0.5 apart.
_MAX_DISTANCE, _MAX_UNKNOWN_SHARE = 0.05, 0.2


def resized(mask: Mask, size: int) -> Mask:
    """Masks (…,size,size) from masks (…,H,W): true where a bilinear resize without antialiasing is above 0.

    Half-pixel centres, as in torch's interpolate and OpenCV's INTER_LINEAR. At half the size, a pixel is true if any
    of its four source pixels is: masks grow a little, and none is lost. At smaller sizes, rows and columns are skipped.
    """
    if mask.ndim < 2:
        raise InputError(f"mask has {mask.ndim} dimension(s): pass (…,H,W)")
    rows, columns = (_weights(side, size) for side in mask.shape[-2:])
    above: Mask = (rows @ mask.astype(np.float32) @ columns.T) > 0
    return above


def _weights(side: int, size: int) -> NDArray[np.float32]:
    """Matrix (size,side) of a bilinear resize along one side; positions outside are clamped to the edge."""
    positions = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    first = np.floor(positions).astype(int)
    matrix = np.zeros((size, side), dtype=np.float32)
    matrix[np.arange(size), first] = 1 - (positions - first)
    matrix[np.arange(size), np.minimum(first + 1, side - 1)] += positions - first
    return matrix


def as_released(mask: Mask) -> Mask:
    """The ground truth (128,128) that the release would have for a mask (H,W) at its image's size.

    The benchmark's own code uses Pillow's bilinear resize, which antialiases: a pixel is true if the object is
    anywhere under its triangle filter.
    """
    if mask.shape == (RELEASED, RELEASED):
        return mask
    image = Image.fromarray(mask.astype(np.float32))
    above: Mask = np.asarray(image.resize((RELEASED, RELEASED), Image.Resampling.BILINEAR)) > 0
    return above


def object_indices(mask_image: NDArray[np.uint8], colours: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index (H,W) of the object at each pixel of a mask image (H,W,3), −1 for background.

    `colours` (objects,3) are the scene's mask colours in linear light; the mask image is in sRGB.
    """
    packed = mask_image.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    values, counts = np.unique(packed, return_counts=True)
    unpacked = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1)
    expected = np.concatenate([linear(np.array([BACKGROUND])), colours])
    distances = np.linalg.norm(linear(unpacked)[:, None] - expected, axis=2)
    nearest = distances.argmin(axis=1) - 1
    unknown = counts[distances.min(axis=1) > _MAX_DISTANCE].sum()
    if unknown > _MAX_UNKNOWN_SHARE * counts[nearest >= 0].sum():
        raise InputError("the mask image has colours that no object of its scene has")
    indices: NDArray[np.int64] = nearest[np.searchsorted(values, packed)]
    return indices


def linear(srgb: NDArray[np.generic]) -> NDArray[np.float64]:
    """Linear light in [0,1] from sRGB values in [0,255]."""
    share = srgb.astype(np.float64) / 255
    light: NDArray[np.float64] = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return light
