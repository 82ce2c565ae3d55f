"""A run folder as a report sees it: rows, and estimates over seeds or samples."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from agop.report.estimate import ANY, Estimate, Range
from agop.runs.rows import Curves, Row, curves, read
from agop.runs.spec import Cell, RunSpec
from agop.system.files import read_bytes

Place = tuple[str, str, str]


class Run:
    """The rows of a finished run, by scenario, background, kind of masks, method and metric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about: dict[str, Any] = json.loads(read_bytes(folder / "about.json"))
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

    @cached_property
    def curves(self) -> Curves:
        """The values at each snapshot, by scenario, background, method and metric."""
        return curves(self.convergence)

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
        return Estimate(tuple(found.values()), self._bounds(metric, masks or self.spec.masks)) if found else None

    def _bounds(self, metric: str, masks: str) -> Range:
        """What a mean cannot leave; a metric of someone's own may say nothing about it."""
        if metric in ("accuracy", "coverage", "milliseconds"):
            return 0, ANY[1] if metric == "milliseconds" else 1
        low, high = self.metrics[metric].get("bounds") or ANY
        return (-high if masks == "signed" else low), high

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
            self._scores[scenario, background] = load(read_bytes(self.folder / "cells" / name / "scores.safetensors"))
        return self._scores[scenario, background]


def paper() -> dict[str, Any]:
    """The paper's figures: scenario → method → metric → value."""
    content = json.loads(files("agop.report").joinpath("paper.json").read_text())
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
