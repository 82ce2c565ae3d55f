"""Maps as bytes: each pixel's share of its map's sum up to the map's top value, on a square-root axis of 256 steps."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.pictures.colouring import DEFAULT_COLOURING, top_value

_SIDE = 128


def pack_maps(maps: NDArray[Any]) -> dict[str, Any]:
    """Maps (S,H,W) as base64 bytes with the share of each map's top value: byte b of a map means top · (b / 255)².

    Larger shares are clipped to the top. A map that is all zero or not finite has no shares: its top is None.
    """
    small = block_sums(np.asarray(maps, dtype=np.float64))
    sums = small.sum(axis=(1, 2), keepdims=True)
    sound = np.isfinite(sums) & (sums > 0)
    shares = np.where(sound, small, 0) / np.where(sound, sums, 1)
    tops = np.array([top_value(share, DEFAULT_COLOURING.percentile) for share in shares])
    return {
        "bytes": base64_text(quantise(shares, tops[:, None, None])),
        "tops": [float(f"{top:.6g}") if top > 0 else None for top in tops],
    }


def quantise(values: NDArray[np.float64], top: NDArray[np.float64] | float) -> NDArray[np.uint8]:
    """255 · √(value / top), rounded, at most 255."""
    whole = np.where(np.asarray(top) > 0, top, 1)
    steps: NDArray[np.uint8] = np.round(255 * np.sqrt(np.clip(values / whole, 0, 1))).astype(np.uint8)
    return steps


def block_sums(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maps (S,H,W) with at most 128 pixels per side. Blocks are summed, so that the total stays the same."""
    step = block_size(maps.shape)
    if step == 1:
        return maps
    height, width = (np.arange(0, side, step) for side in maps.shape[1:])
    sums: NDArray[np.float64] = np.add.reduceat(np.add.reduceat(maps, height, axis=1), width, axis=2)
    return sums


def block_size(shape: tuple[int, ...]) -> int:
    """Side of the blocks that become one pixel."""
    return -(-max(shape[-2:]) // _SIDE)


def base64_text(values: NDArray[np.uint8]) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
