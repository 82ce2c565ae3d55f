"""Localisation: does the map lie in the mask?"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from agop.errors import InputError, MissingExtraError
from agop.metrics.base import located, metric


@metric("PG")
def pointing_game(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """1 if the map's highest pixel is inside the mask, else 0 (N,). For several highest pixels, the share inside.

    Example:
        scores = agop.metrics.pointing_game(maps, masks)

    Zhang et al., "Top-down Neural Attention by Excitation Backprop", 2016.
    """
    batch = located(maps, masks, signed=signed)
    peak = batch.maps == batch.maps.amax(dim=1, keepdim=True)
    return batch.scores((peak & batch.inside).sum(dim=1) / peak.sum(dim=1))


@metric("mIoU")
def iou(maps: Any, masks: Any, *, cut: float = 0.5, signed: bool = False) -> Tensor:
    """Intersection over union (N,) of the mask and the pixels at or above `cut` of the map's range.

    NaN for a constant map, which has no range. With signed masks, negative pixels count negatively in the intersection.

    Example:
        scores = agop.metrics.iou(maps, masks)
    """
    batch = located(maps, masks, signed=signed)
    low, high = batch.maps.amin(dim=1, keepdim=True), batch.maps.amax(dim=1, keepdim=True)
    selected = batch.maps - low >= cut * (high - low)
    inside = (selected * batch.masks).sum(dim=1, dtype=torch.float64)
    union = (selected | (batch.truth != 0)).sum(dim=1)
    return torch.where((high > low)[:, 0], batch.scores(inside / union), torch.nan)


@metric("Energy-GT")
def energy(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Σ map inside the mask / Σ map (N,).

    Example:
        scores = agop.metrics.energy(maps, masks)

    Wang et al., "Score-CAM: Score-Weighted Visual Explanations for Convolutional Neural Networks", 2020.
    """
    batch = located(maps, masks, signed=signed)
    return batch.scores((batch.maps * batch.masks).sum(dim=1, dtype=torch.float64) / batch.totals)


@metric("AP")
def average_precision(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Σ over thresholds of (increase in recall) · precision (N,). Pixels of equal value share a threshold.

    Example:
        scores = agop.metrics.average_precision(maps, masks)
    """
    batch = located(maps, masks, signed=signed)
    values, order = batch.maps.sort(dim=1, descending=True)
    hits = batch.inside.gather(1, order).cumsum(dim=1).double()
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)
    # Pixels of equal value share the precision at the last one of them: carry its place backwards.
    last = torch.ones_like(values, dtype=torch.bool)
    last[:, :-1] = values[:, :-1] != values[:, 1:]
    place = torch.where(last, ranks - 1, values.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    precision = (hits / ranks).gather(1, place)
    increase = torch.diff(hits, dim=1, prepend=torch.zeros_like(hits[:, :1]))
    return batch.scores((increase * precision).sum(dim=1) / hits[:, -1])


@metric("Rank")
def rank_accuracy(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """Share (N,) of the k highest pixels inside the mask of k pixels. Ties at the end count in part.

    Example:
        scores = agop.metrics.rank_accuracy(maps, masks)

    Arras et al., "CLEVR-XAI: A benchmark dataset for the ground truth evaluation of neural network explanations", 2022.
    """
    batch = located(maps, masks, signed=signed)
    values, inside = batch.maps, batch.inside
    size = inside.sum(dim=1)
    place = (values.shape[1] - size[:, None]).clamp(max=values.shape[1] - 1)
    # NumPy's sort is vectorised: ten times as fast as torch's on a CPU.
    on_cpu = values.device.type == "cpu"
    ascending = torch.from_numpy(np.sort(values.detach().numpy(), axis=1)) if on_cpu else values.sort(dim=1).values
    lowest = ascending.gather(1, place)
    above, level = values > lowest, values == lowest
    share = (size - above.sum(dim=1)) / level.sum(dim=1)
    return batch.scores(((above & inside).sum(dim=1) + share * (level & inside).sum(dim=1)) / size)


# The exact distance costs the square of the number of pixels: larger maps are pooled to this size.
_SIDE = 16
Floats = NDArray[np.float64]


@metric("EMD", extra="emd")
def emd(maps: Any, masks: Any, *, signed: bool = False) -> Tensor:
    """1 − cost/D (N,): the cost of moving the map onto the mask, D the image's diagonal; pooled to at most 16×16.

    Example:
        scores = agop.metrics.emd(maps, masks)

    Clark et al., "XAI-TRIS: Non-linear image benchmarks to quantify false positive post-hoc attribution of feature
    importance", 2024.
    """
    try:
        from ot import emd2
    except ImportError as error:
        raise MissingExtraError("the metric emd", "POT", "emd") from error
    batch, shape = located(maps, masks, signed=signed), torch.as_tensor(maps).shape
    if len(shape) > 3:
        raise InputError(f"maps have shape {tuple(shape)}: emd is for images, (N,H,W); use energy or average_precision")
    size = min(_SIDE, shape[1]), min(_SIDE, shape[2])
    both = (part.double().reshape(shape)[:, None] for part in (batch.maps, batch.inside))
    heat, truth = (functional.adaptive_avg_pool2d(part, size)[:, 0] for part in both)
    costs, diagonal = _distances(size, (shape[1] / size[0], shape[2] / size[1]))
    scores = torch.full((len(heat),), torch.nan, dtype=torch.float64)
    # A signed mask may have no positive pixel.
    for sample in (batch.defined & batch.inside.any(dim=1)).nonzero().flatten().tolist():
        source, goal = _shares(heat[sample]), _shares(truth[sample])
        inside = np.flatnonzero(goal)
        scores[sample] = 1 - emd2(source, goal[inside], np.ascontiguousarray(costs[:, inside])) / diagonal
    return scores


def _shares(pixels: Tensor) -> Floats:
    """Shares (P,) of a map (h,w) in its sum."""
    return np.asarray((pixels / pixels.sum()).flatten().cpu())


@lru_cache(maxsize=4)
def _distances(size: tuple[int, int], pixel: tuple[float, float]) -> tuple[Floats, float]:
    """Euclidean distances (P,P) between the pooled pixels of a height and width, and the image's diagonal."""
    places = np.indices(size).reshape(2, -1).T * pixel
    distances: Floats = np.linalg.norm(places[:, None] - places[None], axis=-1)
    return distances, float(distances.max()) or 1.0
