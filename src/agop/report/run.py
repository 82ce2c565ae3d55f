"""A run for reports: rows, estimates over seeds or samples, and who wins."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError, InputError
from agop.report.folder import (
    CELL,
    OBJECT,
    SCORES,
    About,
    Cell,
    CellFiles,
    Row,
    RunSpec,
    cell_files,
    is_control,
    parsed,
)
from agop.stats import ANY, Estimate, Range
from agop.tables import counted

Place = tuple[str, str, str]
_SHARES = {"accuracy", "first_accuracy", "learned", "coverage"}


class Run:
    """A finished run: its spec and its values by scenario, background, kind of masks, method and metric.

    Values are of all test images, and of networks that learned their task; the `with_…` methods select others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about, self.of_samples = About.load(folder), self.spec.intervals == "samples"
        self.cells = cell_files(self.spec, folder)
        self.rows, self.timings = (parsed(self.cells, f"{kind}.jsonl") for kind in ("rows", "timings"))
        self.masks, self.only_correct, self._only_learned = self.spec.masks, False, True
        self._scores: dict[Cell, dict[str, NDArray[np.float64]]] = {}
        # By scenario, background, kind of masks, method and metric, then by seed.
        self._seeds: dict[tuple[str, ...], dict[int, Row]] = defaultdict(dict)
        for row in (*self.rows, *self.timings):
            scenario, background, kind = row["scenario"], row["background"], row.get("masks", self.masks)
            self._seeds[scenario, background, kind, row["method"], row["metric"]][row["seed"]] = row
        self.kinds = list(dict.fromkeys(kind for _, _, kind, _, _ in self._seeds))
        for cell, method, metric in product(self.spec.cells(), self.spec.methods, self.spec.metrics):
            if cell.seed not in self.seeds(cell.scenario, cell.background, method, metric):
                problem = f"{cell.name} has no row for {method}, {metric}"
                raise FileError(f"{self.folder} has files of different runs ({problem}): run again into another folder")

    def seeds(self, scenario: str, background: str, method: str, metric: str, masks: str = "") -> dict[int, Row]:
        """Rows by seed. `masks` defaults to the main kind."""
        return self._seeds.get((scenario, background, masks or self.masks, method, metric), {})

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
        rows = self.seeds(scenario, background, "model", "learned", self.spec.masks)
        return [seed for seed in sorted(rows) if rows[seed]["value"] == 0]

    @cached_property
    def places(self) -> list[Place]:
        """Scenario, background and kind of masks of each table. Kinds that agree in every score have one table."""
        spec = self.spec
        every = [(s, b, k) for k in self.kinds for b in spec.backgrounds for s in spec.scenarios if spec.has(s, b)]
        return [place for place in every if self.equal_kinds(*place)[0] == place[2]]

    def equal_kinds(self, scenario: str, background: str, kind: str) -> list[str]:
        """The kinds of masks with the same scores as this kind, itself included."""
        scores: dict[str, dict[tuple[str, ...], dict[int, float | None]]] = defaultdict(dict)
        for (*place, of_kind, method, metric), rows in self._seeds.items():
            if place == [scenario, background]:
                scores[of_kind][method, metric] = {seed: row["value"] for seed, row in rows.items()}
        common = {other: scores[kind].keys() & scores[other].keys() for other in self.kinds}
        equal = {o: all(scores[kind][key] == scores[o][key] for key in keys) for o, keys in common.items()}
        return [other for other in self.kinds if other == kind or (common[other] and equal[other])]

    @cached_property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Label and direction of each metric, milliseconds last."""
        milliseconds = {"label": "ms", "higher_is_better": False, "what": "wall time per map, in milliseconds"}
        return {**self.about.metrics, "milliseconds": milliseconds}

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

    def has(self, scenario: str, background: str, *methods: str) -> bool:
        """True if the run has these methods on the scenario and background."""
        return self.spec.has(scenario, background) and set(methods) <= {*self.spec.methods, "model"}

    def estimate(self, scenario: str, background: str, method: str, metric: str, masks: str = "") -> Estimate | None:
        """Mean over seeds or samples, None without a value. `masks` defaults to the main kind."""
        values = self.values(scenario, background, method, metric, masks)
        if not values:
            return None
        return Estimate(tuple(values.values()), self._bounds(metric, masks or self.masks), self.of_samples)

    def _bounds(self, metric: str, masks: str) -> Range:
        """Bounds of the metric; a user's own metric may have none."""
        if metric in _SHARES:
            return 0, 1
        if metric in ("attempts", "milliseconds"):
            return 0, ANY[1]
        low, high = self.metrics[metric].get("bounds") or ANY
        return (-high if masks == "signed" else low), high

    def difference(
        self, scenario: str, background: str, metric: str, a: str, b: str, masks: str = ""
    ) -> Estimate | None:
        """Paired difference a − b of two methods, over seeds or samples."""
        left, right = (self.values(scenario, background, m, metric, masks) for m in (a, b))
        both = sorted(left.keys() & right.keys())
        return Estimate(tuple(left[key] - right[key] for key in both), ANY, self.of_samples) if both else None

    def values(self, scenario: str, background: str, method: str, metric: str, masks: str = "") -> dict[int, float]:
        """Defined values by seed, or by sample if intervals are over samples."""
        if not self.spec.has(scenario, background):
            return {}
        kind = self.spec.masks if method == "model" else masks or self.masks
        rows = self.seeds(scenario, background, method, metric, kind)
        dropped = self.not_learned(scenario, background) if self._only_learned else []
        values = {seed: rows[seed]["value"] for seed in sorted(rows) if seed not in dropped}
        used = {seed: value for seed, value in values.items() if value is not None}
        key = f"{kind}/{method}/{metric}"
        cells = {seed: Cell(scenario, background, seed) for seed in used}
        if not (self.of_samples or self.only_correct) or not any(key in self.samples(cell) for cell in cells.values()):
            return used
        scores = {seed: self._of_samples(cell, key) for seed, cell in cells.items()}
        if self.of_samples:
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
        hits = [self.samples(peer)[f"{self.spec.masks}/model/correct"] > 0 for peer in learned]
        return np.asarray(np.min(hits, axis=0))

    def fair(self, scenario: str, background: str, method: str, metric: str, masks: str = "") -> bool:
        """True if the score has at least half as many samples as any other method's: only then may it be the best."""
        # Variants are scored on fewer images than the other methods.
        rivals = self.spec.methods if method in self.spec.methods else self.spec.sensitivity
        rows = {rival: self.seeds(scenario, background, rival, metric, masks).values() for rival in {method, *rivals}}
        counts = {m: sum(row.get("n", 1) for row in own if row["value"] is not None) for m, own in rows.items()}
        return bool(2 * counts[method] >= max(counts.values()))

    def samples(self, cell: Cell) -> dict[str, NDArray[np.float64]]:
        """Per-sample scores (N,) of a cell, keyed masks/method/metric."""
        if cell not in self._scores:
            self._scores[cell] = self.cells[cell].arrays(SCORES)
        return self._scores[cell]

    def first_cell(self, scenario: str, background: str) -> CellFiles:
        """The files of seed 0, whose samples and maps a report shows."""
        return self.cells[Cell(scenario, background, 0)]


@lru_cache(maxsize=1)
def paper() -> dict[str, Any]:
    """The paper's values: scenario → method → metric → value."""
    content = json.loads(files("agop.report").joinpath("paper.json").read_text())
    return dict(content["figures"])


WON, LEVEL, ABOVE = "★", "≈", "▲"
MEANINGS = {
    WON: "best of its column",
    LEVEL: "not significantly different from the best",
    ABOVE: "control that scores higher than the best method",
}


def headline(run: Run) -> str:
    """The run's main metric: mIoU if it has it, else its first."""
    return "iou" if "iou" in run.spec.metrics else run.spec.metrics[0]


def competing(run: Run) -> list[str]:
    """The run's methods without controls."""
    return [method for method in run.spec.methods if not is_control(method)]


def best_methods(scores: Mapping[str, Estimate], lead: Callable[[str, str], Estimate | None], *, up: bool) -> list[str]:
    """Methods that may be the best, the one with the best mean first; empty if there are no scores.

    A method is excluded if another one is significantly ahead on the samples that both have. The methods are compared
    on the data that picks the winner, so the level of each comparison is divided by the number of rivals
    (Holm's first step): one method alone is left by chance in at most 5 % of runs without any difference.
    """

    def beaten(method: str) -> bool:
        leads = (lead(rival, method) for rival in scores if rival != method)
        return any(ahead is not None and ahead.significant(len(scores) - 1) for ahead in leads)

    # Leads over different samples can form a cycle: then nothing is excluded.
    left = {method: score for method, score in scores.items() if not beaten(method)} or scores
    return sorted(left, key=lambda method: left[method].mean, reverse=up)


def marks(
    scores: Mapping[str, Estimate], rivals: Collection[str], lead: Callable[[str, str], Estimate | None], *, up: bool
) -> dict[str, str]:
    """Marks by method: the best of the rivals, those not significantly different from it, and controls above it."""
    best = best_methods({method: score for method, score in scores.items() if method in rivals}, lead, up=up)
    known = bool(best) and scores[best[0]].interval is not None
    by_method = dict.fromkeys(best if known else (), LEVEL) | dict.fromkeys(best[:1], WON)
    for control in (method for method in scores if is_control(method) and best):
        ahead = lead(control, best[0])
        if level(ahead):
            by_method[control] = LEVEL
        elif ahead is not None and ahead.mean > 0:
            by_method[control] = ABOVE
    return by_method


def level(difference: Estimate | None) -> bool:
    """True if a paired difference isn't significant: its interval contains zero."""
    if difference is None or difference.interval is None:
        return False
    return difference.interval[0] <= 0 <= difference.interval[1]


@dataclass(frozen=True)
class Comparison:
    """Our value and the published one, which was read from a figure."""

    scenario: str
    background: str
    method: str
    ours: Estimate
    published: float

    @property
    def difference(self) -> float:
        """Ours minus the published value."""
        return self.ours.mean - self.published


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The published figures by network, background, method and task, with their source and reading error."""
    return dict(json.loads(files("agop.report").joinpath("published.json").read_text(encoding="utf-8")))


def comparisons(run: Run) -> list[Comparison]:
    """Every value of the run that has a published one; none for other benchmarks."""
    about = published()
    if run.spec.benchmark != "xai-tris" or about["masks"] not in run.kinds:
        return []
    view = run.with_masks(about["masks"]).with_correct_images()
    lines = []
    for scenario in run.spec.scenarios:
        task = run.spec.tasks.get(scenario, scenario)
        network = scenario.removeprefix(f"{task}-") if scenario in run.spec.tasks else "cnn"
        for background, by_method in about["figures"].get(network, {}).items():
            for method, by_task in by_method.items():
                ours = view.estimate(scenario, background, method, about["metric"])
                if ours is not None and task in by_task:
                    lines.append(Comparison(scenario, background, method, ours, by_task[task]))
    return lines


def image_choices(run: Run) -> tuple[str, dict[str, dict[str, list[Estimate | None]]]]:
    """The metric, and scores by place and method: on all test images, and on those classified correctly.

    There are no places if the run has only one of the two choices.
    """
    metric = "average_precision" if "average_precision" in run.spec.metrics else headline(run)
    if run.only_correct or not run.records_correct:
        return metric, {}
    view = run.with_correct_images()
    return metric, {
        " / ".join(place): {
            method: [each.estimate(*place, method, metric) for each in (run, view)] for method in competing(run)
        }
        for place in dict.fromkeys(place[:2] for place in run.places)
    }
