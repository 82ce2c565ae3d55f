"""What a model predicts for image files, beside the classes of their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agop.pictures.class_names import class_name


@dataclass(frozen=True)
class Prediction:
    """The predicted and the explained class of an image, its true class or None, and the name of its overlay."""

    file: str
    picture: str
    predicted: int
    probability: float
    target: int
    label: int | None = None

    @property
    def is_wrong(self) -> bool:
        """True if the true class is known and another one is predicted."""
        return self.label is not None and self.label != self.predicted

    def to_dict(self) -> dict[str, Any]:
        """Fields for a manifest."""
        return asdict(self) | {"probability": round(self.probability, 6)}


def wrong_first(predictions: Sequence[Prediction]) -> list[int]:
    """Positions of the predictions: the wrong ones first, the most confident of them on top, then the others."""

    def order(position: int) -> tuple[bool, float]:
        prediction = predictions[position]
        return not prediction.is_wrong, -prediction.probability if prediction.is_wrong else 0.0

    return sorted(range(len(predictions)), key=order)


def summary(predictions: Sequence[Prediction]) -> str:
    """Number of images, and how many are classified correctly if their true class is known."""
    count = len(predictions)
    text = f"{count:,} image{'' if count == 1 else 's'}"
    labelled = [prediction for prediction in predictions if prediction.label is not None]
    if not labelled:
        return text
    correct = sum(not prediction.is_wrong for prediction in labelled)
    of = f"{correct:,} of {len(labelled):,}"
    rest = "" if len(labelled) == count else " with a known class"
    return f"{text}, {of}{rest} classified correctly ({percent(correct / len(labelled))})"


def lines(predictions: Sequence[Prediction], names: Sequence[str], most: int) -> list[str]:
    """Header and the first `most` predictions, wrong ones first, as lines of text."""
    rows = [["file", "predicted", "probability"]]
    for position in wrong_first(predictions)[:most]:
        prediction = predictions[position]
        row = [prediction.file, class_name(names, prediction.predicted), percent(prediction.probability)]
        if prediction.is_wrong:
            row.append(f"wrong: {class_name(names, prediction.label or 0)}")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]:>{widths[2]}}  {''.join(row[3:])}".rstrip()
        for row in rows
    ]


def percent(probability: float) -> str:
    """Percent with one decimal; a probability that isn't quite 0 or 1 isn't rounded to it."""
    if 0 < probability < 0.0005:
        return "under 0.1\u00a0%"
    return "over 99.9\u00a0%" if 0.9995 <= probability < 1 else f"{100 * probability:.1f}\u00a0%"


def label_of(path: Path, folder: Path | None, names: Sequence[str]) -> int | None:
    """The class that a folder is named after: the first one on the way from `folder` to the file, else `folder`.

    Without `folder`, the file's own folder counts. A name that two classes share doesn't.
    """
    root = folder or path.parent
    candidates = [*path.relative_to(root).parts[:-1], root.resolve().name]
    return next((names.index(name) for name in candidates if names.count(name) == 1), None)
