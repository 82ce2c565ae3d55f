"""Earth mover's distance between a map and the mask, as XAI-TRIS scores it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from agop.errors import MissingExtraError
from agop.metrics.base import located, metric

# The exact distance costs the square of the number of pixels: larger maps are pooled to this size.
_SIDE = 16
Floats = NDArray[np.float64]


@metric("EMD", extra="emd")
def emd(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """1 − cost/D (N,): the cost of moving the map onto the mask, D the image's diagonal; pooled to at most 16×16."""
    try:
        from ot import emd2
    except ImportError as error:
        raise MissingExtraError("the metric emd", "POT", "emd") from error
    batch, shape = located(maps, masks, signed=signed), torch.as_tensor(maps).shape
    heat, truth = (_pooled(part.reshape(shape)) for part in (batch.maps.double(), batch.inside.double()))
    costs, diagonal = _distances(*heat.shape[1:])
    scores = torch.full((len(heat),), torch.nan, dtype=torch.float64)
    for sample in batch.defined.nonzero().flatten().tolist():
        source, goal = _shares(heat[sample]), _shares(truth[sample])
        inside = np.flatnonzero(goal)
        scores[sample] = 1 - emd2(source, goal[inside], np.ascontiguousarray(costs[:, inside])) / diagonal
    return scores


def _pooled(maps: Tensor) -> Tensor:
    """Maps (N,h,w) of at most 16×16 pixels, with the sums of their parts preserved up to one factor."""
    size = min(_SIDE, maps.shape[1]), min(_SIDE, maps.shape[2])
    return maps if maps.shape[1:] == size else functional.adaptive_avg_pool2d(maps[:, None], size)[:, 0]


def _shares(pixels: Tensor) -> Floats:
    """Shares (P,) of a map (h,w) in its sum."""
    shares: Floats = (pixels / pixels.sum()).flatten().cpu().numpy()
    return shares


@lru_cache(maxsize=4)
def _distances(height: int, width: int) -> tuple[Floats, float]:
    """Euclidean distances (P,P) between pixels, and the largest one: the image's diagonal."""
    places = np.indices((height, width)).reshape(2, -1).T
    distances: Floats = np.linalg.norm(places[:, None] - places[None], axis=-1)
    return distances, float(distances.max()) or 1.0
