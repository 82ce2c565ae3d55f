"""The specification of a run determines its rows: two runs with one specification have the same rows."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agop.errors import FileError, InputError
from agop.runs.links import refuse_links
from agop.runs.records import read_record, read_values, write_record
from agop.runs.replacing import finish_replacing

FORMAT = 4
_NAME = "spec.json"
# A cell takes seconds at least: more would take days, and enumerating them gigabytes.
_MOST_CELLS = 100_000
# Names become lines of text, and those of scenarios and backgrounds names of folders, of at most 255 bytes.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LONGEST_NAME = 200


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
    times (None: this isn't checked). `tasks` names the task of each scenario that shares its data with others, which
    train other networks. `code` has a digest of the file of each user-defined method.
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
    tasks: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_names()
        for scenario in self.scenarios:
            if not any(self.has(scenario, background) for background in self.backgrounds):
                raise InputError(
                    f"{scenario} has none of the backgrounds {', '.join(self.backgrounds)}: choose another background, "
                    "or run without this scenario"
                )

    def _check_numbers(self) -> None:
        if self.seeds < 1:
            raise InputError(f"seeds is {self.seeds}: pass 1 or more")
        cells = len(self.scenarios) * len(self.backgrounds) * self.seeds
        if cells > _MOST_CELLS:
            raise InputError(f"{cells:,} cells with seeds={self.seeds:,}: pass fewer, at most {_MOST_CELLS:,} cells")
        if self.intervals not in ("seeds", "samples"):
            raise InputError(f"intervals is {self.intervals!r}: pass seeds or samples")

    def _check_names(self) -> None:
        for kind in ("scenarios", "backgrounds", "methods", "metrics"):
            names = getattr(self, kind)
            if not names or len(set(names)) < len(names):
                raise InputError(f"{kind} are {', '.join(names) or 'empty'}: pass one or more different names")
        for name in (*self.methods, *self.metrics, *self.sensitivity, self.masks):
            _check_printable(name)
        for name in (*self.scenarios, *self.backgrounds):
            check_folder_name(name)
        longest = max(self.scenarios, key=len), max(self.backgrounds, key=len)
        if len("".join(longest).encode()) > _LONGEST_NAME:
            raise InputError(f"scenario {longest[0]!r} and background {longest[1]!r} are too long: pass shorter names")

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

    @property
    def main_scenarios(self) -> tuple[str, ...]:
        """The scenarios without those that repeat a task with another network, unless there are no others."""
        return tuple(name for name in self.scenarios if name not in self.tasks) or self.scenarios

    def save(self, folder: Path) -> None:
        """Write spec.json into the run folder."""
        write_record(folder / _NAME, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunSpec:
        """Read spec.json of a run folder. Raises FileError, also for links in the folder, which may leave it."""
        finish_replacing(folder)
        if not (folder / _NAME).exists():
            raise FileError(f"{folder} is not a run folder: give one that `agop bench` or `agop evaluate` wrote")
        refuse_links(folder)
        fix = "run again into another folder"
        number = read_values(folder / _NAME, fix).get("format")
        if number != FORMAT:
            raise FileError(
                f"{folder} is not a run folder of this version of agop: its format is {number!r}, not {FORMAT}: "
                "run again into another folder, or replace it with `agop bench --fresh`"
            )
        return read_record(folder / _NAME, cls, fix)

    def differences(self, other: RunSpec) -> dict[str, tuple[Any, Any]]:
        """Fields that differ: name → (own value, other value)."""
        ours, theirs = asdict(self), asdict(other)
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def check_folder_name(name: str) -> None:
    """Raise unless the name of a scenario or background can be part of a folder's name."""
    _check_printable(name)
    if "/" in name or "\\" in name:
        raise InputError(f"name is {name!r}: pass a name without slashes, it becomes part of a folder's name")


def _check_printable(name: str) -> None:
    if not name or _NOT_IN_NAMES.search(name) or len(name.encode()) > _LONGEST_NAME:
        raise InputError(f"name is {name[:99]!r}: pass one to {_LONGEST_NAME} bytes of printable text")
