"""Detectors of shortcuts: the audit, SpRAy, and a plain reading of maps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from agop.auditing.examining import Settings, Subject, examined
from agop.auditing.pool import read_pool
from agop.auditing.regions import Box, overlap
from agop.explaining.explain import explain
from agop.runs.shortcuts import Detection
from agop.scenarios.shortcuts.task import PlantedTask
from agop.statistic.agop import AGOP

# Images of each class whose maps are read.
_IMAGES = 40
# Side of maps in SpRAy, and neighbours of each map.
_POOLED, _NEIGHBOURS = 8, 8
_SMALLEST_P = 1e-12
Read = Callable[[nn.Module, PlantedTask, AGOP], tuple[float, Tensor | None]]


def by_audit(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[Detection, tuple[str, ...]]:
    """The audit's search in the test images, and its findings in words, without the parts that don't search.

    The alarm is −log10 of the smallest p value, before the correction, which would make most of them 1.
    """
    start = time.perf_counter()
    pool = read_pool(model, task.test.images, task.test.labels, per_class=200, seed=0, progress=False)
    subject = Subject.of(model, pool, None)
    names = [f"class {index}" for index in range(pool.classes)]
    with examined(subject, pool, prior, names, Settings(0, progress=False, stages=None)) as result:
        findings = [finding for _, finding in result.findings]
    seconds = time.perf_counter() - start
    alarm = -math.log10(max(min((trial.p for trial in result.tested), default=1.0), _SMALLEST_P))
    regions = [finding.region for finding in findings if finding.region is not None]
    sentences = tuple(finding.sentence for finding in findings)
    return Detection(alarm, seconds, bool(findings), _best_overlap(regions, task)), sentences


def by_reading(name: str, model: nn.Module, task: PlantedTask, prior: AGOP) -> Detection:
    """The detector of that name, which has an alarm and a region, but no verdict."""
    start = time.perf_counter()
    alarm, region = READERS[name](model, task, prior)
    seconds = time.perf_counter() - start
    return Detection(alarm, seconds, iou=_best_overlap([] if region is None else [region], task))


def _best_overlap(regions: list[Tensor], task: PlantedTask) -> float | None:
    """The largest overlap with the plant; None without a region of the plant or of the detector."""
    if task.plant.fixed is None or not regions:
        return None
    truth = torch.from_numpy(task.plant.fixed)
    return max(overlap(region, truth) for region in regions)


def _shares(maps: Tensor) -> Tensor:
    """Maps (N,H,W) as shares of their sums."""
    return maps / maps.sum(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def _top_window(maps: Tensor) -> tuple[float, Tensor]:
    """The largest share of a map (K,H,W) in a window of a sixth of its side, and that window."""
    side = max(2, maps.shape[-1] // 6)
    sums = avg_pool2d(_shares(maps)[:, None].double(), side, stride=1)[:, 0] * side**2
    place = int(sums.flatten().argmax())
    top, left = place % sums[0].numel() // sums.shape[2], place % sums.shape[2]
    box = Box(top, left, top + side, left + side)
    return float(sums.max()), box.region((maps.shape[1], maps.shape[2]))


def _class_maps(method: str, model: nn.Module, task: PlantedTask) -> list[Tensor]:
    """Maps (M,H,W) of some test images, by class."""
    return [
        _shares(explain(model, task.test.images[task.test.labels == index][:_IMAGES], method, nan="skip").nan_to_num())
        for index in range(int(task.test.labels.max()) + 1)
    ]


def _plain(method: str) -> Read:
    """The mean map of each class: how much of it is in its top window?"""

    def read(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
        return _top_window(torch.stack([maps.mean(dim=0) for maps in _class_maps(method, model, task)]))

    return read


def _agop(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
    """The diagonal of each class: how much of it is in its top window?"""
    diagonals = prior.class_diagonals
    if diagonals is None:
        raise ValueError("the prior has no diagonals per class")
    return _top_window(diagonals.sum(dim=1).nan_to_num())


def _spray(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
    """SpRAy (Lapuschkin et al. 2019): spectral clustering of each class's maps. The alarm is the largest eigengap.

    A gap among the first eigenvalues of the Laplacian says that the maps fall into clusters. The region is the top
    window of the mean map of one of two halves, split by the second eigenvector.
    """
    best: tuple[float, Tensor | None] = (0.0, None)
    for maps in _class_maps("integrated-gradients:steps=16", model, task):
        small = interpolate(maps[:, None], size=(_POOLED, _POOLED), mode="area").flatten(1)
        values, vectors = np.linalg.eigh(laplacian(small.double().numpy()))
        gaps = np.diff(values[: len(values) // 4])
        if gaps.max() > best[0]:
            second = torch.from_numpy(vectors[:, 1] > np.median(vectors[:, 1]))
            best = float(gaps.max()), _top_window(maps[second].mean(dim=0)[None])[1]
    return best


def laplacian(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normalised Laplacian (N,N) of the symmetric graph of nearest neighbours of points (N,F)."""
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :_NEIGHBOURS]
    graph = np.zeros_like(distances)
    np.put_along_axis(graph, nearest, 1.0, axis=1)
    graph = (graph + graph.T) / 2
    scale = 1 / np.sqrt(graph.sum(axis=1))
    return np.asarray(np.eye(len(points)) - scale[:, None] * graph * scale)


READERS: dict[str, Read] = {
    "agop-global": _agop,
    "integrated-gradients": _plain("integrated-gradients:steps=16"),
    "gradcam": _plain("gradcam"),
    "spray": _spray,
}
DETECTORS = ("audit", *READERS)
