"""Provenance: the model, data and options behind an AGOP. Stored as JSON in its file."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from agop.errors import FileError

FORMAT = 1
TRAINING = "training-accumulated"
CHECKPOINT = "one checkpoint"

T = TypeVar("T")


class _Record:
    """A dataclass that converts to and from JSON. Each field is stored under its own name."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values by field name, without empty fields."""
        values = ((item.name, _to_json(getattr(self, item.name))) for item in fields(self))  # type: ignore[arg-type]
        return {name: value for name, value in values if value not in (None, [], {})}

    @classmethod
    def from_dict(cls: type[T], values: Any) -> T:
        """Read what `to_dict` returned. Unknown keys are ignored; values of a wrong type raise FileError."""
        return _from_json(cls, json.loads(json.dumps(values)), "provenance")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ImagesDigest(_Record):
    """A set of image files: their number, a digest of their names, and digests of some files to detect overlaps."""

    count: int
    names: str
    some: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataProvenance(_Record):
    """The images behind an AGOP: class names, preprocessing (fields of `Preprocessing`) and the files."""

    classes: tuple[str, ...] = ()
    preprocessing: dict[str, Any] = field(default_factory=dict)
    pictures: ImagesDigest | None = None


@dataclass(frozen=True)
class MergedPart(_Record):
    """One of the AGOPs that `merge` joined. `parameters` is set if it was collected during training."""

    name: str
    count: int
    digest: str
    rank: int | None = None
    ranks: int | None = None
    steps: int | None = None
    parameters: str | None = None
    pictures: ImagesDigest | None = None


@dataclass(frozen=True)
class Provenance(_Record):
    """Where an AGOP comes from. A field is empty if it isn't known or doesn't apply.

    `kind` is TRAINING or CHECKPOINT, `model` the fingerprint, `classes` the number of classes, and `skipped` the number
    of samples without finite gradients. Of the `labelled` samples, counted or not, the model classified `correct`
    correctly. `rank`, `ranks` and `parameters` (a digest) are set in snapshots only.
    """

    format: int = FORMAT
    kind: str | None = None
    model: dict[str, str] = field(default_factory=dict)
    input_shape: tuple[int, ...] = ()
    classes: int | None = None
    count: int | None = None
    skipped: int = 0
    labelled: int | None = None
    correct: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    steps: int | None = None
    rank: int | None = None
    ranks: int | None = None
    parameters: str | None = None
    data: DataProvenance = field(default_factory=DataProvenance)
    merged: tuple[MergedPart, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples that the model classified correctly; None without labels."""
        return self.correct / self.labelled if self.labelled and self.correct is not None else None

    @classmethod
    def from_dict(cls, values: Any) -> Provenance:
        """Read what `to_dict` returned. Unknown keys are ignored; malformed values raise FileError."""
        provenance = super().from_dict(values)
        if values.get("model") is not None and not {"architecture", "weights"} <= provenance.model.keys():
            raise FileError(f"provenance.model is {provenance.model!r}: expected keys architecture and weights")
        return provenance


def _to_json(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    return value


def _from_json(kind: Any, value: Any, name: str) -> Any:
    """The JSON value as a field of the annotated type. Raises FileError if it has another type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if type(None) in arguments:  # X | None
        return _from_json(arguments[0], value, name)
    expected: Any = {tuple: list}.get(origin, dict if is_dataclass(kind) else origin or kind)
    if type(value) is not expected:  # not isinstance: True is an int
        raise FileError(f"{name} is {value!r}: expected {expected.__name__}")
    if is_dataclass(kind):
        return _record_from_json(kind, value, name)
    if origin is tuple:
        return tuple(_from_json(arguments[0], item, name) for item in value)
    if origin is dict:
        return {key: _from_json(arguments[1], item, f"{name}.{key}") for key, item in value.items()}
    return value


def _record_from_json(kind: Any, values: dict[str, Any], name: str) -> Any:
    values = {key: value for key, value in values.items() if value is not None}
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    if missing := sorted(required - values.keys()):
        raise FileError(f"{name} lacks {', '.join(missing)}")
    types = get_type_hints(kind)
    return kind(
        **{
            item.name: _from_json(types[item.name], values[item.name], f"{name}.{item.name}")
            for item in fields(kind)
            if item.name in values
        }
    )
