"""Provenance: the model, data and options behind an AGOP. Stored as JSON in its file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from reprlib import repr as short_repr
from typing import Any, TypeVar

from agop.errors import FileError
from agop.system.typed_json import from_json, to_json

FORMAT = 2
# Files without a patch matrix and a sketch.
EARLIER_FORMATS = (1,)
TRAINING = "training-accumulated"
CHECKPOINT = "one checkpoint"
# Accuracy below this multiple of 1 / number of classes is about chance; that of few images isn't judged.
_CHANCE, _FEW = 1.2, 50

T = TypeVar("T")
Plain = bool | int | float | str | None


class _Record:
    """A dataclass that converts to and from JSON. Each field is stored under its own name."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values by field name, without empty fields."""
        return dict(to_json(self))

    @classmethod
    def from_dict(cls: type[T], values: Any) -> T:
        """Read what `to_dict` returned. Unknown keys are ignored; values of a wrong type raise FileError."""
        return from_json(cls, json.loads(json.dumps(values)), "provenance")  # type: ignore[no-any-return]


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
    preprocessing: dict[str, Plain | list[Plain]] = field(default_factory=dict)
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
    correctly. `layer` is the layer of the patch matrix. `rank`, `ranks`, `parameters` (a digest) and `training` (a
    random id of the hook, kept when the training is resumed) are set in snapshots only.
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
    options: dict[str, Plain] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    layer: str | None = None
    steps: int | None = None
    rank: int | None = None
    ranks: int | None = None
    parameters: str | None = None
    training: str | None = None
    data: DataProvenance = field(default_factory=DataProvenance)
    merged: tuple[MergedPart, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples that the model classified correctly; None without labels."""
        return self.correct / self.labelled if self.labelled and self.correct is not None else None

    @property
    def at_chance(self) -> bool:
        """True if the model classified its samples about as by chance.

        False if that isn't known: the accuracy during training says little about that of the model now.
        """
        if self.kind == TRAINING or self.accuracy is None or self.classes is None or (self.labelled or 0) < _FEW:
            return False
        return self.accuracy < _CHANCE / self.classes

    @property
    def output(self) -> str:
        """What the gradients are of: "predicted" or "contrast"."""
        return str(self.options.get("output", "predicted"))  # files of earlier versions don't record it

    @classmethod
    def from_dict(cls, values: Any) -> Provenance:
        """Read what `to_dict` returned. Unknown keys are ignored; malformed values raise FileError."""
        provenance = super().from_dict(values)
        if values.get("model") is not None and not {"architecture", "weights"} <= provenance.model.keys():
            raise FileError(
                f"provenance.model is {short_repr(provenance.model)}: expected keys architecture and weights"
            )
        if provenance.kind not in (None, TRAINING, CHECKPOINT):
            raise FileError(f"provenance.kind is {short_repr(provenance.kind)}: expected {TRAINING} or {CHECKPOINT}")
        if provenance.rank is not None and not 0 <= provenance.rank < (provenance.ranks or 0):
            raise FileError(f"provenance.rank is {provenance.rank} of {provenance.ranks} ranks")
        for name in ("classes", "count", "skipped", "labelled", "correct", "steps"):
            number = getattr(provenance, name)
            if number is not None and number < 0:
                raise FileError(f"provenance.{name} is {number}: expected 0 or more")
        if (provenance.correct or 0) > (provenance.labelled or 0):
            raise FileError(f"provenance.correct is {provenance.correct} of {provenance.labelled} labelled samples")
        return provenance
