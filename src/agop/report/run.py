"""A run folder for reports: rows, and estimates over seeds or samples."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, astuple
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError
from agop.report.estimate import ANY, Estimate, Range
from agop.runs.about import About
from agop.runs.cell_files import CellFiles
from agop.runs.rows import Curves, Row, cell_files, curves, parsed
from agop.runs.spec import Cell, RunSpec

Place = tuple[str, str, str]
# Metrics in the rows of every run.
_OF_THE_MODEL = {"accuracy", "coverage"}


class Run:
    """A finished run: its spec and its values by scenario, background, kind of masks, method and metric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about = About.load(folder)
        self.cells = cell_files(self.spec, folder)
        self.rows = parsed(self.cells, "rows.jsonl")
        self.timings = parsed(self.cells, "timings.jsonl")
        _check_complete(folder, self.spec, self.about, self.rows)
        self._scores: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
        self.kinds = list(dict.fromkeys(row.get("masks", self.spec.masks) for row in self.rows))
        self._seeds = _by_seed([*self.rows, *self.timings], self.spec.masks)
        self._counts = _counts([*self.rows, *self.timings], self.spec.masks)

    @property
    def places(self) -> list[Place]:
        """Scenario, background and kind of masks of each table."""
        spec = self.spec
        return [(s, b, k) for k in self.kinds for b in spec.backgrounds for s in spec.scenarios if spec.has(s, b)]

    @cached_property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Label and direction of each metric, milliseconds last."""
        metrics = {name: asdict(metric) for name, metric in self.about.metrics.items()}
        return {**metrics, "milliseconds": {"label": "ms", "higher_is_better": False}}

    @property
    def versions(self) -> list[str]:
        """The versions that computed the cells: several if the run was resumed with others."""
        recorded = (self.about.versions, *(files.versions for files in self.cells.values()))
        texts = (", ".join(f"{name} {number}" for name, number in versions.items()) for versions in recorded)
        return list(dict.fromkeys(texts))

    @cached_property
    def convergence(self) -> list[Row]:
        """Rows of the training snapshots; empty if the run trained nothing or not long enough for a snapshot."""
        return parsed(self.cells, "convergence.jsonl")

    @cached_property
    def curves(self) -> Curves:
        """Values at each snapshot, by scenario, background, method and metric."""
        return curves(self.convergence)

    def has(self, scenario: str, background: str, *methods: str) -> bool:
        """True if the run has these methods on the scenario and background."""
        return self.spec.has(scenario, background) and all(
            method in (*self.spec.methods, "model") for method in methods
        )

    def estimate(
        self, scenario: str, background: str, method: str, metric: str, masks: str | None = None
    ) -> Estimate | None:
        """Mean over seeds or samples, None without a value. `masks` defaults to the main kind."""
        values = self.values(scenario, background, method, metric, masks)
        return Estimate(tuple(values.values()), self._bounds(metric, masks or self.spec.masks)) if values else None

    def _bounds(self, metric: str, masks: str) -> Range:
        """Bounds of the metric; a user's own metric may have none."""
        if metric in ("accuracy", "coverage", "milliseconds"):
            return 0, ANY[1] if metric == "milliseconds" else 1
        low, high = self.metrics[metric].get("bounds") or ANY
        return (-high if masks == "signed" else low), high

    def difference(
        self, scenario: str, background: str, metric: str, a: str, b: str, masks: str | None = None
    ) -> Estimate | None:
        """Paired difference a − b of two methods, over seeds or samples."""
        left, right = (self.values(scenario, background, m, metric, masks) for m in (a, b))
        both = sorted(left.keys() & right.keys())
        return Estimate(tuple(left[key] - right[key] for key in both)) if both else None

    def values(
        self, scenario: str, background: str, method: str, metric: str, masks: str | None = None
    ) -> dict[int, float]:
        """Defined values by seed, or by sample if intervals are over samples."""
        masks = masks or self.spec.masks
        if not self.spec.has(scenario, background):
            return {}
        if self.spec.intervals == "samples" and f"{masks}/{method}/{metric}" in self.samples(scenario, background):
            scores = self.samples(scenario, background)[f"{masks}/{method}/{metric}"]
            return {index: float(scores[index]) for index in np.flatnonzero(np.isfinite(scores))}
        seeds = self._seeds[scenario, background, masks, method, metric]
        return {seed: value for seed, value in sorted(seeds.items()) if value is not None}

    def fair(self, scenario: str, background: str, method: str, metric: str, masks: str | None = None) -> bool:
        """True if the score has at least half as many samples as any other method's: only then may it be the best."""
        counts = self._counts[scenario, background, masks or self.spec.masks, metric]
        # Variants are scored on fewer images than the other methods.
        rivals = self.spec.methods if method in self.spec.methods else self.spec.sensitivity
        return 2 * counts[method] >= max((counts[rival] for rival in rivals), default=0)

    def samples(self, scenario: str, background: str) -> dict[str, NDArray[np.float64]]:
        """Per-sample scores (N,) of seed 0, keyed masks/method/metric."""
        if (scenario, background) not in self._scores:
            self._scores[scenario, background] = self.first_cell(scenario, background).scores()
        return self._scores[scenario, background]

    def first_cell(self, scenario: str, background: str) -> CellFiles:
        """The files of seed 0, whose samples and maps a report shows."""
        return self.cells[Cell(scenario, background, 0)]


@lru_cache(maxsize=1)
def paper() -> dict[str, Any]:
    """The paper's values: scenario → method → metric → value."""
    content = json.loads(files("agop.report").joinpath("paper.json").read_text())
    return dict(content["figures"])


def _check_complete(folder: Path, spec: RunSpec, about: About, rows: Sequence[Row]) -> None:
    """Raise unless each cell has a row per method and metric of the specification, and each metric is described."""
    main = [row for row in rows if row.get("masks", spec.masks) == spec.masks]
    scored = {(row["scenario"], row["background"], row["seed"], row["method"], row["metric"]) for row in main}
    for cell, method, metric in product(spec.cells(), spec.methods, spec.metrics):
        if (*astuple(cell), method, metric) not in scored:
            raise _mixed(folder, f"{cell.name} has no row for {method}, {metric}")
    if unknown := {row["metric"] for row in rows} - _OF_THE_MODEL - about.metrics.keys():
        raise _mixed(folder, f"about.json doesn't describe {min(unknown)}")


def _mixed(folder: Path, problem: str) -> FileError:
    return FileError(f"{folder} has files of different runs ({problem}): run again into another folder")


def _by_seed(rows: Sequence[Row], main: str) -> dict[tuple[str, ...], dict[int, float | None]]:
    values: dict[tuple[str, ...], dict[int, float | None]] = defaultdict(dict)
    for row in rows:
        key = (row["scenario"], row["background"], row.get("masks", main), row["method"], row["metric"])
        values[key][row["seed"]] = row["value"]
    return values


def _counts(rows: Sequence[Row], main: str) -> dict[tuple[str, ...], Counter[str]]:
    """Number of samples behind each method's scores, over all seeds."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["value"] is not None:
            key = (row["scenario"], row["background"], row.get("masks", main), row["metric"])
            counts[key][row["method"]] += row.get("n", 1)
    return counts
