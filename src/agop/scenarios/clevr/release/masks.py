"""Masks: resized, brought to the release's size, and told from a mask picture's colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import InputError

Mask = NDArray[np.bool_]
RELEASED = 128
BACKGROUND = (64, 64, 64)
# In linear light. Rounding to eight bits moves a colour by at most 0.008; random colours lie some 0.5 apart.
_FAR, _MANY = 0.05, 0.2


def resized(mask: Mask, size: int) -> Mask:
    """Masks (…,size,size) from masks (…,H,W): true where a bilinear resize without antialiasing is above 0.

    Half-pixel centres, as in torch's interpolate and OpenCV's INTER_LINEAR. A halved side keeps whatever either of its
    two pixels had, so masks grow a little and none is lost; beyond that, rows and columns are skipped.
    """
    if mask.ndim < 2:
        raise InputError(f"a mask has {mask.ndim} dimension(s): give (…,H,W)")
    rows, columns = (_weights(side, size) for side in mask.shape[-2:])
    above: Mask = (rows @ mask.astype(np.float32) @ columns.T) > 0
    return above


def _weights(side: int, size: int) -> NDArray[np.float32]:
    """The matrix (size,side) of a bilinear resize along one side; positions beyond the edge take the edge."""
    places = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    first = np.floor(places).astype(int)
    matrix = np.zeros((size, side), dtype=np.float32)
    matrix[np.arange(size), first] = 1 - (places - first)
    matrix[np.arange(size), np.minimum(first + 1, side - 1)] += places - first
    return matrix


def as_released(mask: Mask) -> Mask:
    """The mask (128,128) the release would hold for a mask (H,W) at its picture's size.

    The benchmark's own code makes its ground truths with Pillow's bilinear resize, which does antialias: a pixel is
    true if the object is anywhere under its triangle.
    """
    if mask.shape == (RELEASED, RELEASED):
        return mask
    picture = Image.fromarray(mask.astype(np.float32))
    above: Mask = np.asarray(picture.resize((RELEASED, RELEASED), Image.Resampling.BILINEAR)) > 0
    return above


def objects_of(picture: NDArray[np.uint8], colours: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which object (H,W) each pixel of a mask picture (H,W,3) shows: its index, −1 for background.

    `colours` (objects,3) are the scene's mask colours, in linear light; the picture is in sRGB.
    """
    packed = picture.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    values, counts = np.unique(packed, return_counts=True)
    shown = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1)
    known = np.concatenate([linear(np.array([BACKGROUND])), colours])
    distances = np.linalg.norm(linear(shown)[:, None] - known, axis=2)
    nearest = distances.argmin(axis=1) - 1
    far = counts[distances.min(axis=1) > _FAR].sum()
    if far > _MANY * counts[nearest >= 0].sum():
        raise InputError("a mask picture has colours that no object of its scene has")
    objects: NDArray[np.int64] = nearest[np.searchsorted(values, packed)]
    return objects


def linear(srgb: NDArray[np.generic]) -> NDArray[np.float64]:
    """Linear light in [0,1] from sRGB values in [0,255]."""
    share = srgb.astype(np.float64) / 255
    light: NDArray[np.float64] = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return light
