"""A run folder as a report sees it: rows, and estimates over seeds with bootstrap intervals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from agop.bench.rows import Row, read
from agop.bench.spec import RunSpec
from agop.files import read_whole

_DRAWS = 4000
Place = tuple[str, str]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its bootstrap 95 % interval; no interval from fewer than two seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 2.5th and 97.5th percentile of means over seeds drawn with replacement."""
        if len(self.values) < 2:
            return None
        drawn = np.random.default_rng(0).choice(np.array(self.values), (_DRAWS, len(self.values)))
        low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
        return float(low), float(high)

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


class Run:
    """The rows of a finished run, by scenario, background, method and metric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = RunSpec.load(folder)
        self.about: dict[str, Any] = json.loads(read_whole(folder / "about.json"))
        self.rows = read(folder)
        self.timings = read(folder, "timings.jsonl")
        self._seeds = _by_seed([*self.rows, *self.timings])

    @property
    def places(self) -> list[Place]:
        """Scenario and background of each table."""
        return [(s, b) for b in self.spec.backgrounds for s in self.spec.scenarios]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Label and direction of each metric, milliseconds last."""
        return {**self.about["metrics"], "milliseconds": {"label": "ms", "higher_is_better": False}}

    @cached_property
    def convergence(self) -> list[Row]:
        """The rows of the snapshots."""
        return read(self.folder, "convergence.jsonl")

    def has(self, scenario: str, background: str, *methods: str) -> bool:
        """True if the run has these methods there."""
        here = scenario in self.spec.scenarios and background in self.spec.backgrounds
        return here and all(method in (*self.spec.methods, "model") for method in methods)

    def estimate(self, scenario: str, background: str, method: str, metric: str) -> Estimate | None:
        """The mean over seeds, or None where no seed has a value."""
        seeds = self._seeds[scenario, background, method, metric]
        values = tuple(value for _, value in sorted(seeds.items()) if value is not None)
        return Estimate(values) if values else None

    def difference(self, scenario: str, background: str, metric: str, a: str, b: str) -> Estimate | None:
        """The paired difference of two methods, seed by seed."""
        left, right = (self._seeds[scenario, background, method, metric] for method in (a, b))
        both = [(left[s], right[s]) for s in sorted(left.keys() & right.keys())]
        pairs = [(x, y) for x, y in both if x is not None and y is not None]
        return Estimate(tuple(x - y for x, y in pairs)) if pairs else None


def paper() -> dict[str, Any]:
    """The paper's figures: scenario → method → metric → value."""
    content = json.loads(files("agop.bench").joinpath("paper.json").read_text())
    return dict(content["figures"])


def _by_seed(rows: Sequence[Row]) -> dict[tuple[str, str, str, str], dict[int, float | None]]:
    found: dict[tuple[str, str, str, str], dict[int, float | None]] = defaultdict(dict)
    for row in rows:
        found[row["scenario"], row["background"], row["method"], row["metric"]][row["seed"]] = row["value"]
    return found
