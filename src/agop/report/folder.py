"""The run folder: its specification, what its names mean, its rows and the files of its cells. No torch here."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from agop.errors import FileError, InputError
from agop.io import package_version, read_bytes, write_atomically
from agop.processes import available_cores

FORMAT = 4
LOCK = ".lock"
FILES = ("rows.jsonl", "timings.jsonl", "convergence.jsonl")
SCORES, PRIOR, WEIGHTS = "scores.safetensors", "agop.safetensors", "checkpoint.safetensors"
_SPEC, _ABOUT, _CELL, _GALLERY, _NEW = "spec.json", "about.json", "cell.json", "gallery.safetensors", ".new.part"
_FIX = "run again into another folder"
# Images in a gallery.
SHOWN = 12
# The cell of the explained class, and the object's pixels in that cell.
CELL, OBJECT = "grid cell", "grid object"

# Name → what the map is, one sentence for a report.
CONTROLS = {
    "random": "Control: uniform noise, different for every image.",
    "input": "Control: the absolute values of the image.",
    "sobel": "Control: the edges of the image, by a Sobel filter.",
    "laplace": "Control: the second derivative of the image, by a Laplace filter.",
    "activation-norm": "Control: the norm of the first convolution's outputs. It depends on that layer only, without "
    "gradients.",
    "agop:what=activation-norm": "Control: agop with the norm of the first layer's outputs as its factor *what*.",
    "agop:what=sobel": "Control: agop with the edges of the image as its factor *what*.",
    "agop:what=mean-difference": "Control: agop with the distance to the mean training image as its factor *what*.",
    "centre": "Control: a Gaussian blob in the middle, the same for every image.",
    "mean-mask": "Control: the mean mask of the training data, the same for every image.",
}
# The method agop with another factor *what*.
AGOP_CONTROLS = tuple(name for name in CONTROLS if name.startswith("agop:"))
_OF_THE_MODEL = ("activation-norm", "agop")


def is_control(method: str) -> bool:
    """True for a control, also one with options: random:seed=3."""
    return method in CONTROLS or method.partition(":")[0] in CONTROLS


def is_model_independent(control: str) -> bool:
    """True for a control that doesn't depend on the model at all."""
    return control.partition(":")[0] not in _OF_THE_MODEL


Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]
Curves = dict[tuple[str, str, str, str], dict[int, list[float]]]


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
        if self.seeds < 1:
            raise InputError(f"seeds is {self.seeds}: pass 1 or more")
        if self.intervals not in ("seeds", "samples"):
            raise InputError(f"intervals is {self.intervals!r}: pass seeds or samples")
        for kind in ("scenarios", "backgrounds", "methods", "metrics"):
            names = getattr(self, kind)
            if not names or len(set(names)) < len(names):
                raise InputError(f"{kind} are {', '.join(names) or 'empty'}: pass one or more different names")
        for name in (*self.scenarios, *self.backgrounds):
            check_folder_name(name)
        for scenario in self.scenarios:
            if not any(self.has(scenario, background) for background in self.backgrounds):
                raise InputError(
                    f"{scenario} has none of the backgrounds {', '.join(self.backgrounds)}: choose another background, "
                    "or run without this scenario"
                )

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
        write_json(folder / _SPEC, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunSpec:
        """Read spec.json of a run folder. Raises FileError."""
        path = folder / _SPEC
        if not path.exists():
            raise FileError(f"{folder} is not a run folder: give one that `agop bench` or `agop evaluate` wrote")
        number = read_json(path).get("format")
        if number != FORMAT:
            raise FileError(
                f"{folder} is not a run folder of this version of agop: its format is {number!r}, not {FORMAT}: "
                "run again into another folder, or replace it with `agop bench --fresh`"
            )
        spec: RunSpec = read_record(path, cls)
        return spec

    def differences(self, other: RunSpec) -> dict[str, tuple[Any, Any]]:
        """Fields that differ: name → (own value, other value)."""
        ours, theirs = (json.loads(json.dumps(asdict(spec))) for spec in (self, other))
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def check_folder_name(name: str) -> None:
    """Raise InputError unless the name of a scenario or background can be part of a folder's name."""
    if not name.isprintable() or not 0 < len(name.encode(errors="replace")) <= 200:
        raise InputError(f"name is {name[:99]!r}: pass one to 200 bytes of printable text")
    if "/" in name or "\\" in name:
        raise InputError(f"name is {name!r}: pass a name without slashes, it becomes part of a folder's name")


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write the values as JSON."""
    write_atomically(path, json.dumps(values, indent=1).encode())


def read_json(path: Path, fix: str = _FIX) -> dict[str, Any]:
    """The JSON object in the file. Raises FileError, with this fix."""
    try:
        return dict(json.loads(read_bytes(path)))
    except (ValueError, TypeError) as error:
        raise FileError(f"{path} is damaged ({error}): {fix}") from error


def read_record(path: Path, kind: Any, fix: str = _FIX) -> Any:
    """The JSON object in the file as a dataclass with tuples instead of lists. Other names in the file are ignored."""
    values, names = read_json(path, fix), {item.name for item in fields(kind)}
    known = {name: value for name, value in values.items() if name in names}
    try:
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})
    except (InputError, TypeError) as error:
        raise FileError(f"{path} is damaged ({error}): {fix}") from error


@dataclass(frozen=True)
class About:
    """Facts of a run. `classes` and `samples` are names by scenario, `methods` descriptions by method.

    A metric has a label, higher_is_better, and may have bounds and a description (what).
    """

    metrics: dict[str, dict[str, Any]]
    command: str = ""
    network: str | None = None
    notes: tuple[str, ...] = ()
    classes: dict[str, Sequence[str]] = field(default_factory=dict)
    samples: dict[str, Sequence[str]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> About:
        """Read about.json of a run folder. Raises FileError."""
        about: About = read_record(folder / _ABOUT, cls)
        return about


def command_line() -> str:
    """The running command, as a user would type it."""
    return shlex.join(["agop", *sys.argv[1:]])


def save_about(folder: Path, **facts: Any) -> None:
    """Write about.json with the facts of this run: command, metrics, classes, network, notes."""
    hardware = {
        "processor": _processor(),
        "machine": platform.machine(),
        "cores": available_cores(),
        "memory": _memory(),
        "system": platform.system(),
    }
    write_json(folder / _ABOUT, facts | {"versions": versions(), "hardware": hardware})


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that determine results."""
    return {"python": platform.python_version()} | {name: package_version(name) for name in ("agop", "torch", "numpy")}


def _processor() -> str:
    """Name of the processor; empty if the system doesn't report it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory() -> str:
    """Size of the memory; empty if the system doesn't report it."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return ""


class CellFiles:
    """Reader of a finished cell. Raises FileError for a file that is missing or malformed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._fix = folder, f"delete {folder} and run again"

    @property
    def versions(self) -> dict[str, str]:
        """The versions that computed the cell."""
        return dict(read_json(self.folder / _CELL, self._fix)["versions"]) if (self.folder / _CELL).exists() else {}

    def content(self, name: str) -> bytes:
        """Content of a file."""
        with self.reading(name):
            return (self.folder / name).read_bytes()

    def arrays(self, name: str) -> Arrays:
        """Arrays of a .safetensors file by name, sorted; empty if the cell doesn't have the file."""
        if not (self.folder / name).exists():
            return {}
        with self.reading(name):
            return dict(sorted(load(self.content(name)).items()))

    def snapshots(self) -> dict[int, str]:
        """Names of the snapshot files by training step."""
        names = sorted(path.name for path in self.folder.glob("snapshots/step-*.safetensors"))
        return {int(name[5:-12]): f"snapshots/{name}" for name in names}

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn an error about a file or its content into a FileError that names the file and the fix."""
        try:
            yield
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"{self.folder / name} is damaged ({reason}): {self._fix}") from error


Cells = dict[Cell, CellFiles]


def row(method: str, metric: str, value: float | None, n: int) -> Row:
    """A row without its cell."""
    return {"method": method, "metric": metric, "value": value, "n": n}


def save_cell(folder: Path, cell: Cell, files: dict[str, Iterable[Row]]) -> None:
    """Write the rows of a cell by the names of their files, and the versions that made them."""
    for name, rows in files.items():
        lines = "".join(json.dumps(asdict(cell) | row) + "\n" for row in rows)
        write_atomically(folder / name, lines.encode())
    write_json(folder / _CELL, {"versions": versions()})


def missing(cells: Iterable[Cell], folder: Path) -> list[Cell]:
    """The cells that the run folder doesn't have yet: a finished cell has its final name."""
    return [cell for cell in cells if not (folder / "cells" / cell.name).exists()]


def cell_files(spec: RunSpec, folder: Path) -> Cells:
    """The files of all cells, in the order of the rows. Raises FileError if a cell is missing."""
    if unfinished := missing(spec.cells(), folder):
        raise FileError(
            f"{folder} is incomplete, {len(unfinished)} of {len(spec.cells())} cells are missing, the first is "
            f"{unfinished[0].name}: run the bench again to resume"
        )
    return {cell: CellFiles(folder / "cells" / cell.name) for cell in spec.cells()}


def collected(cells: Cells, name: str) -> bytes:
    """A row file of the run, from those of its cells."""
    return b"".join(files.content(name) for files in cells.values())


def collect(spec: RunSpec, folder: Path) -> None:
    """Write the row files of a run, from those of its cells in the order of the specification."""
    cells = cell_files(spec, folder)
    for name in FILES:
        write_atomically(folder / name, collected(cells, name))


def read(folder: Path, name: str = "rows.jsonl") -> list[Row]:
    """Rows of a run folder."""
    return parsed(cell_files(RunSpec.load(folder), folder), name)


def parsed(cells: Cells, name: str) -> list[Row]:
    """Rows of the cells. Raises FileError for malformed rows."""
    needed = {"method", "metric", "value"} | ({"step"} if name == "convergence.jsonl" else set())
    rows = []
    for cell, files in cells.items():
        own = asdict(cell).items()
        with files.reading(name):
            for row in map(json.loads, files.content(name).splitlines()):
                if lacking := needed - row.keys():
                    raise ValueError(f"a row lacks {min(lacking)}")
                if not isinstance(row["value"], int | float | None):
                    raise ValueError(f"value of a row is {row['value']!r}")
                if not own <= row.items():
                    raise ValueError("it has rows of another cell")
                rows.append(row)
    return rows


def curves(rows: Iterable[Row]) -> Curves:
    """Defined values of all seeds at each step, by scenario, background, method and metric."""
    by_key: Curves = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["value"] is not None:
            key = row["scenario"], row["background"], row["method"], row["metric"]
            by_key[key][int(row["step"])].append(float(row["value"]))
    return by_key


@dataclass(frozen=True)
class Gallery:
    """Some samples of a cell: images (S,H,W,3) as uint8, labels and predictions (S,), masks by kind and maps by
    method (S,H,W), and their indices (S,) in the data, None for the first ones. An unknown label is −1.
    """

    pictures: NDArray[np.uint8]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    masks: Arrays = field(default_factory=dict)
    maps: Arrays = field(default_factory=dict)
    places: NDArray[np.int64] | None = None

    def save(self, cell: Path) -> None:
        """Write the gallery into the folder of a cell."""
        content: Arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        for kind in ("masks", "maps"):
            content |= {f"{kind}/{name}": array for name, array in getattr(self, kind).items()}
        write_atomically(cell / _GALLERY, save({name: np.ascontiguousarray(array) for name, array in content.items()}))

    @classmethod
    def load(cls, cell: Path) -> Gallery | None:
        """Read the gallery from the folder of a cell; None if the cell has none. Raises FileError."""
        files = CellFiles(cell)
        arrays = files.arrays(_GALLERY)
        if not arrays:
            return None
        named: dict[str, Any] = {name: array for name, array in arrays.items() if "/" not in name}
        for kind in ("masks", "maps"):
            prefix = f"{kind}/"
            named[kind] = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        with files.reading(_GALLERY):
            return cls(**named)


def spread(count: int) -> list[int]:
    """Indices of the samples to show, evenly spaced: the first ones of class folders would all be of one class."""
    return [int(place) for place in np.linspace(0, count - 1, min(count, SHOWN)).round()]


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """A folder to write a run into. When the block has ended, its files replace those of the run in `folder`."""
    part = folder / _NEW
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        remove_run(folder)
        for path in sorted(part.iterdir(), key=lambda path: path.name == _SPEC):  # the specification last
            path.rename(folder / path.name)
    except OSError as error:
        raise FileError(f"could not replace the run in {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_run(folder: Path) -> None:
    """Delete the files of a run, and no others. The specification is first: what is left of the run isn't one."""
    try:
        for name in (_SPEC, _ABOUT, "index.html", *FILES):
            (folder / name).unlink(missing_ok=True)
        if (folder / "cells").exists():
            shutil.rmtree(folder / "cells")
    except OSError as error:
        raise FileError(f"could not delete {error.filename}: {error.strerror}") from error
