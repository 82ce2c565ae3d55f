"""A run folder as a report sees it: rows, and estimates over seeds or samples with bootstrap intervals."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from agop.files import read_whole
from agop.runs.rows import Row, read
from agop.runs.spec import Cell, RunSpec

_DRAWS, _MOST_DRAWN = 4000, 2000
Place = tuple[str, str, str]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds or samples with its bootstrap 95 % interval; no interval from fewer than two of them."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds or samples."""
        return float(np.mean(self.values))

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 2.5th and 97.5th percentile of means over values drawn with replacement; of many values, which would take
        gigabytes to draw, the normal interval, which is the same by then.
        """
        if len(self.values) < 2:
            return None
        if len(self.values) > _MOST_DRAWN:
            reach = 1.96 * float(np.std(self.values, ddof=1)) / len(self.values) ** 0.5
            return self.mean - reach, self.mean + reach
        means = _draws(len(self.values)) @ np.array(self.values)
        low, high = np.percentile(means, [2.5, 97.5])
        return float(low), float(high)

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


@lru_cache(maxsize=8)
def _draws(count: int) -> NDArray[np.float64]:
    """How much each of so many values weighs in the mean of each draw (draws, count): the same for all estimates."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _DRAWS)
    weights: NDArray[np.float64] = drawn / count
    return weights


class Run:
    """The rows of a finished run, by scenario, background, kind of masks, method and metric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about: dict[str, Any] = json.loads(read_whole(folder / "about.json"))
        self.rows = read(folder)
        self.timings = read(folder, "timings.jsonl")
        self._scores: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
        self.kinds = list(dict.fromkeys(row.get("masks", self.spec.masks) for row in self.rows))
        self._seeds = _by_seed([*self.rows, *self.timings], self.spec.masks)
        self._counts = _counts([*self.rows, *self.timings], self.spec.masks)

    @property
    def places(self) -> list[Place]:
        """Scenario, background and kind of masks of each table."""
        spec = self.spec
        return [(s, b, k) for k in self.kinds for b in spec.backgrounds for s in spec.scenarios if spec.has(s, b)]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Label and direction of each metric, milliseconds last."""
        return {**self.about["metrics"], "milliseconds": {"label": "ms", "higher_is_better": False}}

    @cached_property
    def convergence(self) -> list[Row]:
        """The rows of the snapshots; none where nothing was trained, or not for long enough to make one."""
        path = self.folder / "convergence.jsonl"
        if self.spec.epochs == 0 or (path.exists() and path.stat().st_size == 0):
            return []
        return read(self.folder, "convergence.jsonl")

    def has(self, scenario: str, background: str, *methods: str) -> bool:
        """True if the run has these methods there."""
        return self.spec.has(scenario, background) and all(
            method in (*self.spec.methods, "model") for method in methods
        )

    def estimate(
        self, scenario: str, background: str, method: str, metric: str, masks: str | None = None
    ) -> Estimate | None:
        """The mean over seeds or samples, or None where there is no value; masks of the main kind if not told."""
        found = self.values(scenario, background, method, metric, masks)
        return Estimate(tuple(found.values())) if found else None

    def difference(
        self, scenario: str, background: str, metric: str, a: str, b: str, masks: str | None = None
    ) -> Estimate | None:
        """The paired difference of two methods, seed by seed or sample by sample."""
        left, right = (self.values(scenario, background, m, metric, masks) for m in (a, b))
        both = sorted(left.keys() & right.keys())
        return Estimate(tuple(left[key] - right[key] for key in both)) if both else None

    def values(
        self, scenario: str, background: str, method: str, metric: str, masks: str | None = None
    ) -> dict[int, float]:
        """The defined values by seed or, where intervals are over samples, by sample."""
        masks = masks or self.spec.masks
        if self.spec.intervals == "samples" and f"{masks}/{method}/{metric}" in self.samples(scenario, background):
            scores = self.samples(scenario, background)[f"{masks}/{method}/{metric}"]
            return {place: float(scores[place]) for place in np.flatnonzero(~np.isnan(scores))}
        seeds = self._seeds[scenario, background, masks, method, metric]
        return {seed: value for seed, value in sorted(seeds.items()) if value is not None}

    def fair(self, scenario: str, background: str, method: str, metric: str, masks: str | None = None) -> bool:
        """True if the score counts at least half as many samples as any other's there: only then may it be the best."""
        counts = self._counts[scenario, background, masks or self.spec.masks, metric]
        # Variants are scored on fewer images, all of them.
        rivals = self.spec.methods if method in self.spec.methods else self.spec.sensitivity
        return 2 * counts[method] >= max((counts[rival] for rival in rivals), default=0)

    def samples(self, scenario: str, background: str) -> dict[str, NDArray[np.float64]]:
        """The scores (N,) of seed 0 one by one, as kind of masks/method/metric."""
        if (scenario, background) not in self._scores:
            name = Cell(scenario, background, 0).name
            self._scores[scenario, background] = load(read_whole(self.folder / "cells" / name / "scores.safetensors"))
        return self._scores[scenario, background]


def paper() -> dict[str, Any]:
    """The paper's figures: scenario → method → metric → value."""
    content = json.loads(files("agop.bench").joinpath("paper.json").read_text())
    return dict(content["figures"])


def _by_seed(rows: Sequence[Row], main: str) -> dict[tuple[str, ...], dict[int, float | None]]:
    found: dict[tuple[str, ...], dict[int, float | None]] = defaultdict(dict)
    for row in rows:
        key = (row["scenario"], row["background"], row.get("masks", main), row["method"], row["metric"])
        found[key][row["seed"]] = row["value"]
    return found


def _counts(rows: Sequence[Row], main: str) -> dict[tuple[str, ...], Counter[str]]:
    """How many samples the scores of each method count, over all seeds."""
    found: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["value"] is not None:
            found[row["scenario"], row["background"], row.get("masks", main), row["metric"]][row["method"]] += row.get(
                "n", 1
            )
    return found
