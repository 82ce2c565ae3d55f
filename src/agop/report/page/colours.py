"""Perceptually uniform colours: inferno for maps, viridis for cells, and ink that can be read on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agop.pictures.heat import INFERNO

_VIRIDIS = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
Nodes = tuple[tuple[int, int, int], ...]


def inferno() -> NDArray[np.uint8]:
    """256 colours (256,3) from black to light yellow."""
    return _table(INFERNO)


def shade(place: float) -> tuple[str, str]:
    """The colour of viridis at a place in 0 .. 1, and the ink, black or white, that stands out more from it."""
    colour = _table(_VIRIDIS)[round(255 * min(max(place, 0.0), 1.0))]
    dark = _luminance(colour) + 0.05
    return f"rgb({', '.join(map(str, colour))})", "#000" if dark / 0.05 > 1.05 / dark else "#fff"


def gradient() -> str:
    """Viridis from left to right, as CSS."""
    return f"linear-gradient(to right, {', '.join(f'rgb{colour}' for colour in _VIRIDIS)})"


def _table(nodes: Nodes) -> NDArray[np.uint8]:
    steps, wanted = np.linspace(0, 1, len(nodes)), np.linspace(0, 1, 256)
    channels = [np.interp(wanted, steps, np.array(nodes)[:, channel]) for channel in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


def _luminance(colour: NDArray[np.uint8]) -> float:
    """Relative luminance of an sRGB colour, as the accessibility guidelines define it."""
    part = colour / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))
