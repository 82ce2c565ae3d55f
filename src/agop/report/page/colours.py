"""Colours of the page: inferno for maps, viridis for grid cells, and readable text on them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agop.pictures.heat import COLOUR_MAPS, heat


def inferno() -> NDArray[np.uint8]:
    """256 colours (256,3) from black to light yellow."""
    return _ramp("inferno")


def shade(position: float) -> tuple[str, str]:
    """Viridis colour at a position in 0..1, and black or white, whichever has more contrast on it; both as CSS."""
    colour = _ramp("viridis")[round(255 * min(max(position, 0.0), 1.0))]
    dark = _luminance(colour) + 0.05
    return f"rgb({', '.join(map(str, colour))})", "#000" if dark / 0.05 > 1.05 / dark else "#fff"


def gradient() -> str:
    """Viridis from left to right, as CSS."""
    return f"linear-gradient(to right, {', '.join(f'rgb{colour}' for colour in COLOUR_MAPS['viridis'])})"


@lru_cache
def _ramp(colours: str) -> NDArray[np.uint8]:
    """256 colours (256,3) of a colour map."""
    return np.asarray(heat(np.linspace(0, 1, 256)[None], 1.0, colours)[0])


def _luminance(colour: NDArray[np.uint8]) -> float:
    """Relative luminance of an sRGB colour, as defined by WCAG."""
    part = colour / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))
