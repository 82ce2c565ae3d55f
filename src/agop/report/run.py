"""A run folder for reports: rows, and estimates over seeds or samples."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, astuple
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError, InputError
from agop.report.estimate import ANY, Estimate, Range
from agop.report.numbers import counted
from agop.runs.about import About
from agop.runs.cell_files import CellFiles
from agop.runs.grid_masks import CELL, OBJECT
from agop.runs.rows import Curves, Row, cell_files, curves, parsed
from agop.runs.spec import Cell, RunSpec

Place = tuple[str, str, str]
# Metrics in the rows of every run.
_SHARES = {"accuracy", "first_accuracy", "learned", "coverage"}
_OF_THE_MODEL = _SHARES | {"attempts"}


class Run:
    """A finished run: its spec and its values by scenario, background, kind of masks, method and metric.

    Values are of all test images, and of networks that learned their task; the `with_…` methods select others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about = About.load(folder)
        self.cells = cell_files(self.spec, folder)
        self.rows = parsed(self.cells, "rows.jsonl")
        self.timings = parsed(self.cells, "timings.jsonl")
        _check_complete(folder, self.spec, self.about, self.rows)
        self._scores: dict[Cell, dict[str, NDArray[np.float64]]] = {}
        self.masks, self.only_correct, self._only_learned = self.spec.masks, False, True
        self.kinds = list(dict.fromkeys(row.get("masks", self.spec.masks) for row in self.rows))
        self._seeds = _by_seed([*self.rows, *self.timings], self.spec.masks)
        self._counts = _counts([*self.rows, *self.timings], self.spec.masks)

    def with_masks(self, kind: str) -> Run:
        """The run with another main kind of masks."""
        return self._with(masks=kind)

    def with_correct_images(self) -> Run:
        """The run with the test images that every network of a task classifies correctly, the published rule."""
        if not self.records_correct:
            raise InputError(f"{self.folder} doesn't record which images are classified correctly: report all images")
        return self._with(only_correct=True)

    @property
    def images(self) -> str:
        """The test images behind the scores, as a noun phrase."""
        every = counted(self.spec.test_images, "test image")
        return f"{every}, only those that all networks classify correctly" if self.only_correct else every

    @property
    def records_correct(self) -> bool:
        """True if the run records which images its networks classify correctly."""
        return f"{self.spec.masks}/model/correct" in self.samples(self.spec.cells()[0])

    def with_all_networks(self) -> Run:
        """The run with the networks that didn't learn their task."""
        return self._with(_only_learned=False)

    def _with(self, **changes: Any) -> Run:
        other = copy(self)
        vars(other).update(changes)
        return other

    def not_learned(self, scenario: str, background: str) -> list[int]:
        """Seeds whose network didn't learn its task."""
        seeds = self._seeds.get((scenario, background, self.spec.masks, "model", "learned"), {})
        return [seed for seed, learned in sorted(seeds.items()) if learned == 0]

    @cached_property
    def places(self) -> list[Place]:
        """Scenario, background and kind of masks of each table. Kinds that agree in every score have one table."""
        spec = self.spec
        every = [(s, b, k) for k in self.kinds for b in spec.backgrounds for s in spec.scenarios if spec.has(s, b)]
        return [place for place in every if self.equal_kinds(*place)[0] == place[2]]

    def equal_kinds(self, scenario: str, background: str, kind: str) -> list[str]:
        """The kinds of masks with the same scores as this kind, itself included."""
        scores = self._by_kind[scenario, background]

        def equal(other: str) -> bool:
            common = scores[kind].keys() & scores[other].keys()
            return kind == other or (bool(common) and all(scores[kind][key] == scores[other][key] for key in common))

        return [other for other in self.kinds if equal(other)]

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str], dict[str, dict[tuple[str, str], dict[int, float | None]]]]:
        """Values by seed, by scenario and background, kind of masks, and method and metric."""
        values: dict[tuple[str, str], dict[str, dict[tuple[str, str], dict[int, float | None]]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for (scenario, background, kind, method, metric), seeds in self._seeds.items():
            values[scenario, background][kind][method, metric] = seeds
        return values

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
        return Estimate(tuple(values.values()), self._bounds(metric, masks or self.masks)) if values else None

    def _bounds(self, metric: str, masks: str) -> Range:
        """Bounds of the metric; a user's own metric may have none."""
        if metric in _SHARES:
            return 0, 1
        if metric in ("attempts", "milliseconds"):
            return 0, ANY[1]
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
        if not self.spec.has(scenario, background):
            return {}
        kind = self.spec.masks if method == "model" else masks or self.masks
        seeds = self._seeds[scenario, background, kind, method, metric]
        dropped = self.not_learned(scenario, background) if self._only_learned else []
        used = {seed: value for seed, value in sorted(seeds.items()) if value is not None and seed not in dropped}
        by_sample = self.spec.intervals == "samples"
        key = f"{kind}/{method}/{metric}"
        cells = {seed: Cell(scenario, background, seed) for seed in used}
        if not (by_sample or self.only_correct) or not any(key in self.samples(cell) for cell in cells.values()):
            return used
        scores = {seed: self._of_samples(cell, key) for seed, cell in cells.items()}
        if by_sample:
            return scores.get(0, {})
        return {seed: float(np.mean([*values.values()])) for seed, values in scores.items() if values}

    def _of_samples(self, cell: Cell, key: str) -> dict[int, float]:
        """Defined scores of a cell's selected samples, by their index."""
        scores = self.samples(cell)[key]
        selected = np.isfinite(scores)
        # All images of a grid are classified correctly.
        if self.only_correct and not key.startswith((f"{CELL}/", f"{OBJECT}/")):
            selected &= self._correct(cell)[: len(scores)]
        return {int(index): float(scores[index]) for index in np.flatnonzero(selected)}

    def _correct(self, cell: Cell) -> NDArray[np.bool_]:
        """True for the samples that all networks with the same data and seed classify correctly, if they learned."""
        task = self.spec.tasks.get(cell.scenario, cell.scenario)
        peers = [name for name in self.spec.scenarios if self.spec.tasks.get(name, name) == task]
        cells = [Cell(name, cell.background, cell.seed) for name in peers if self.spec.has(name, cell.background)]
        learned = [peer for peer in cells if peer.seed not in self.not_learned(peer.scenario, peer.background)]
        hits = [self.samples(peer)[f"{self.spec.masks}/model/correct"] for peer in learned]
        correct: NDArray[np.bool_] = np.min([hit > 0 for hit in hits], axis=0)
        return correct

    def fair(self, scenario: str, background: str, method: str, metric: str, masks: str | None = None) -> bool:
        """True if the score has at least half as many samples as any other method's: only then may it be the best."""
        counts = self._counts[scenario, background, masks or self.masks, metric]
        # Variants are scored on fewer images than the other methods.
        rivals = self.spec.methods if method in self.spec.methods else self.spec.sensitivity
        return 2 * counts[method] >= max((counts[rival] for rival in rivals), default=0)

    def samples(self, cell: Cell) -> dict[str, NDArray[np.float64]]:
        """Per-sample scores (N,) of a cell, keyed masks/method/metric."""
        if cell not in self._scores:
            self._scores[cell] = self.cells[cell].scores()
        return self._scores[cell]

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
