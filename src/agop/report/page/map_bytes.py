"""Maps as bytes: each one's shares of its own sum, on a square-root axis of 256 steps."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIDE = 128


def packed(maps: NDArray[Any]) -> dict[str, Any]:
    """Maps (S,H,W) as base64 bytes, and the largest share of each: byte b of a map stands for top · (b / 255)².

    A map that is zero or not finite has no shares: its top is None.
    """
    small = reduced(np.asarray(maps, dtype=np.float64))
    sums = small.sum(axis=(1, 2), keepdims=True)
    sound = np.isfinite(sums) & (sums > 0)
    shares = np.where(sound, small, 0) / np.where(sound, sums, 1)
    tops = shares.max(axis=(1, 2))
    return {
        "bytes": encoded(quantised(shares, tops[:, None, None])),
        "tops": [float(f"{top:.6g}") if top > 0 else None for top in tops],
    }


def quantised(values: NDArray[np.float64], top: NDArray[np.float64] | float) -> NDArray[np.uint8]:
    """255 · √(value / top), rounded."""
    whole = np.where(np.asarray(top) > 0, top, 1)
    steps: NDArray[np.uint8] = np.round(255 * np.sqrt(np.clip(values / whole, 0, 1))).astype(np.uint8)
    return steps


def reduced(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maps (S,H,W) of at most 128 pixels a side: the sums of blocks, so that shares stay shares."""
    step = factor(maps.shape)
    if step == 1:
        return maps
    height, width = (np.arange(0, side, step) for side in maps.shape[1:])
    found: NDArray[np.float64] = np.add.reduceat(np.add.reduceat(maps, height, axis=1), width, axis=2)
    return found


def factor(shape: tuple[int, ...]) -> int:
    """How many pixels a side become one."""
    return -(-max(shape[-2:]) // _SIDE)


def encoded(values: NDArray[np.uint8]) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
