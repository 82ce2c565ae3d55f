"""The specification of a run determines its rows: two runs with one specification have the same rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agop.errors import FileError, InputError
from agop.system.files import read_bytes, write_atomically


@dataclass(frozen=True)
class Cell:
    """One training and its evaluation."""

    scenario: str
    background: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the cell's folder."""
        return f"{self.scenario}-{self.background}-{self.seed:03d}"


@dataclass(frozen=True)
class RunSpec:
    """What a run computes: every scenario × background × seed, with these methods and metrics.

    `sensitivity` lists variants of methods, scored on the first `sensitivity_images` by the metrics that don't query
    the model. `intervals` are over "seeds" or, in a run of one seed, over "samples". `steps` is for deletion and
    insertion, None for the metric's default. `options` belong to the scenario. `absent` lists backgrounds that a
    scenario lacks, as "scenario/background". A network that doesn't learn its task is trained again, at most `restarts`
    times (None: this isn't checked). `code` has a digest of the file of each user-defined method.
    """

    benchmark: str
    scenarios: tuple[str, ...]
    backgrounds: tuple[str, ...]
    seeds: int
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    masks: str = "true"
    epochs: int = 100
    test_images: int = 1000
    steps: int | None = None
    sensitivity: tuple[str, ...] = ()
    sensitivity_images: int = 0
    intervals: str = "seeds"
    options: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    restarts: int | None = None
    code: dict[str, str] = field(default_factory=dict)
    format: int = 2

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"seeds is {self.seeds}: pass 1 or more")

    def cells(self) -> list[Cell]:
        """All cells, in the order of the rows."""
        return [
            Cell(scenario, background, seed)
            for scenario in self.scenarios
            for background in self.backgrounds
            for seed in range(self.seeds)
            if self.has(scenario, background)
        ]

    def has(self, scenario: str, background: str) -> bool:
        """True if the run has this scenario with this background."""
        listed = scenario in self.scenarios and background in self.backgrounds
        return listed and f"{scenario}/{background}" not in self.absent

    def save(self, folder: Path) -> None:
        """Write spec.json into the run folder."""
        write_atomically(folder / "spec.json", json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> RunSpec:
        """Read spec.json of a run folder."""
        if not (folder / "spec.json").exists():
            raise FileError(f"{folder} is not a run folder: give one that `agop bench` or `agop evaluate` wrote")
        try:
            values = json.loads(read_bytes(folder / "spec.json"))
            fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
            return cls(**fields)
        except (ValueError, TypeError, AttributeError) as error:
            raise FileError(
                f"{folder} is not a run folder of this version of agop: spec.json can't be read ({error})"
            ) from error

    def differences(self, other: RunSpec) -> dict[str, tuple[Any, Any]]:
        """Fields that differ: name → (own value, other value)."""
        ours, theirs = asdict(self), asdict(other)
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
