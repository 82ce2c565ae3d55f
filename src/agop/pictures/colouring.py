"""How maps become colours: each on its own scale or all on one, clipped at a percentile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError
from agop.pictures.heat import COLOUR_MAPS
from agop.registry import unknown_name_error

SCALES = ("own", "common")


@dataclass(frozen=True)
class Colouring:
    """How maps are drawn.

    Each map is clipped at its top value, see `top_value`. With the scale "own", the brightest colour of a map is its
    top value. With "common", a colour is a pixel's share of its map's sum, on a square-root axis that ends at the
    largest top value among the maps. `opacity` is that of the brightest colour over the image; `colours` is a name in
    COLOUR_MAPS.
    """

    scale: str = "own"
    percentile: float = 98.0
    opacity: float = 1.0
    colours: str = "inferno"

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise unknown_name_error("scale", self.scale, SCALES)
        if self.colours not in COLOUR_MAPS:
            raise unknown_name_error("colour map", self.colours, list(COLOUR_MAPS))
        if not 0 < self.percentile <= 100:
            raise InputError(f"percentile is {self.percentile}: pass a number above 0, at most 100, for example 98")
        if not 0 <= self.opacity <= 1:
            raise InputError(f"opacity is {self.opacity}: pass a number from 0 to 1")

    def strengths(self, maps: Mapping[str, NDArray[np.floating]]) -> tuple[dict[str, NDArray[np.float64]], float]:
        """Maps (H,W) as positions 0..1 in the colours, and what the brightest colour means.

        That is 1 on the own scale: the map's top value. On the common scale it is the largest share of a sum. It is 0
        if no map has colours: a map that is all zero or not finite becomes zeros.
        """
        units = {name: _relative_to_maximum(saliency) for name, saliency in maps.items()}
        tops = {name: top_value(unit, self.percentile) for name, unit in units.items()}
        own = {name: np.minimum(unit / tops[name], 1) if tops[name] > 0 else unit for name, unit in units.items()}
        if self.scale == "own":
            return own, float(any(top > 0 for top in tops.values()))
        shares = {name: tops[name] / unit.sum() if tops[name] > 0 else 0.0 for name, unit in units.items()}
        largest = max(shares.values(), default=0.0)
        return {n: np.sqrt(own[n] * shares[n] / largest) if largest > 0 else own[n] for n in own}, float(largest)


DEFAULT_COLOURING = Colouring()


def top_value(saliency: NDArray[np.floating], percentile: float) -> float:
    """The value of the brightest colour: a map's pixels above it hold at most 100 − percentile percent of its sum.

    It is the smallest such value of the map (H,W), as in Captum's `outlier_perc`. So a pixel with more than the rest of
    the sum is never clipped, even if it is the only one. 0 for a map that is all zero or not finite.
    """
    values = np.sort(saliency, axis=None)
    sums = np.cumsum(_relative_to_maximum(values))
    return float(values[np.searchsorted(sums, sums[-1] * (percentile / 100))]) if sums[-1] > 0 else 0.0


def _relative_to_maximum(saliency: NDArray[np.floating]) -> NDArray[np.float64]:
    """The map divided by its maximum, so that no sum overflows or underflows; zeros if all zero or not finite."""
    values = np.asarray(saliency, dtype=np.float64)
    largest = values.max(initial=0.0)
    if not np.isfinite(values).all() or largest <= 0:
        return np.zeros_like(values)
    return np.asarray(values.clip(min=0) / largest)
