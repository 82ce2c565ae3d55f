"""The run folder of `agop bench shortcuts`: what was measured on each model, one file each (no torch)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from agop.errors import InputError
from agop.runs.records import read_record, write_record

_SPEC, _MODELS = "shortcuts.json", "models"
_FIX = "delete it and run again to resume"


@dataclass(frozen=True)
class ShortcutSpec:
    """What a run computes: from which images, for how many epochs, with which detectors. More models can be added."""

    classes: int
    samples: int
    side: int
    epochs: int
    detectors: tuple[str, ...]
    labels: tuple[int, ...] = ()
    data: str | None = None


@dataclass(frozen=True)
class Detection:
    """What a detector says about one model.

    `alarm` is larger the more it suspects a shortcut. `found` is its own verdict, None if it has none. `iou` is the
    overlap of the region it names with that of the plant, None without both.
    """

    alarm: float
    seconds: float
    found: bool | None = None
    iou: float | None = None


@dataclass(frozen=True)
class ModelResult:
    """One model: its plant, how much it uses it, and what each detector says.

    `drop` is the accuracy that the model loses if the plant changes sides, `change` the mean rise of P(class) in images
    that get the plant. `fixed`: the plant is always at the same place. `share` is the mean of diag(M) there over its
    mean everywhere, `transplant` the mean rise of P(class) when the place is pasted from images of the class into
    others. `findings` are the sentences of the audit.
    """

    kind: str
    prevalence: str
    strength: str
    seed: int
    accuracy: float
    drop: float
    change: float
    fixed: bool
    detections: dict[str, Detection]
    findings: tuple[str, ...]
    share: float | None = None
    transplant: float | None = None


def begin(spec: ShortcutSpec, folder: Path) -> None:
    """Create the run folder, or check that it has the same specification."""
    if not (folder / _SPEC).exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} already exists and isn't a run of `agop bench shortcuts`: choose another --out")
        write_record(folder / _SPEC, asdict(spec))
        return
    other = read_spec(folder)
    different = [name for name, value in asdict(spec).items() if getattr(other, name) != value]
    if different:
        name = different[0]
        own, wanted = getattr(other, name), getattr(spec, name)
        raise InputError(f"{folder} has a run with {name}={own!r}, not {wanted!r}: choose another --out")


def read_spec(folder: Path) -> ShortcutSpec:
    """The specification of a run. Raises FileError."""
    return read_record(folder / _SPEC, ShortcutSpec, _FIX)


def model_file(folder: Path, name: str) -> Path:
    """The file of a model's result."""
    return folder / _MODELS / f"{name}.json"


def write_result(folder: Path, name: str, result: ModelResult) -> None:
    """Write what was measured on a model."""
    write_record(model_file(folder, name), asdict(result))


def read_results(folder: Path) -> list[ModelResult]:
    """The results of all finished models. Raises FileError if one is damaged."""
    return [read_record(path, ModelResult, _FIX) for path in sorted((folder / _MODELS).glob("*.json"))]
