"""The explaining loop: image files → predictions and maps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from agop import methods
from agop.errors import AGOPError, FileError
from agop.explanation import explain
from agop.images.files import Skip, class_name
from agop.images.overlays import Picture
from agop.images.preprocessing import Preprocessing
from agop.methods.base import missing_layer
from agop.model.outputs import OutputLike, logit, predicted, probabilities
from agop.model.probe import probing
from agop.prior.agop import AGOP
from agop.tables import Table, counted


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
    confidence = [prediction.probability if prediction.is_wrong else -1 for prediction in predictions]
    return sorted(range(len(predictions)), key=lambda place: -confidence[place])


def summary(predictions: Sequence[Prediction]) -> str:
    """Number of images, and how many are classified correctly if their true class is known."""
    text = counted(len(predictions), "image")
    labelled = [prediction for prediction in predictions if prediction.label is not None]
    if not labelled:
        return text
    correct = sum(not prediction.is_wrong for prediction in labelled)
    known = "" if len(labelled) == len(predictions) else " with a known class"
    share = percent(correct / len(labelled))
    return f"{text}, {correct:,} of {len(labelled):,}{known} classified correctly ({share})"


def lines(predictions: Sequence[Prediction], names: Sequence[str], most: int) -> list[str]:
    """Header and the first `most` predictions, wrong ones first, as lines of text."""
    rows = [
        (
            prediction.file,
            class_name(names, prediction.predicted),
            percent(prediction.probability).rjust(len("probability")),
            f"wrong: {class_name(names, prediction.label or 0)}" if prediction.is_wrong else "",
        )
        for prediction in (predictions[position] for position in wrong_first(predictions)[:most])
    ]
    return Table(("file", "predicted", "probability", ""), rows).text()


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


# Files read at once, and the most pixels of their inputs. `explain` decides how many are in the model at once.
_READ_TOGETHER, _READ_PIXELS = 32, 2**23

Read = Callable[[Path], Image.Image]
Images = list[tuple[Path, Image.Image]]


@dataclass(frozen=True)
class Explained:
    """One image (H,W,3) with its class probabilities (K,) and its maps (H,W) by method."""

    path: Path
    picture: Picture
    probabilities: Tensor
    predicted: int
    target: int
    maps: dict[str, Tensor]

    @property
    def probability(self) -> float:
        """Probability of the predicted class."""
        return float(self.probabilities[self.predicted])


@dataclass(frozen=True)
class Explainer:
    """A model and the options to explain it with.

    With `lenient`, a method that fails is skipped and NaN gradients give a map of NaN; otherwise both raise.
    """

    model: nn.Module
    methods: Sequence[str]
    preprocessing: Preprocessing
    prior: AGOP | None = None
    target: int | None = None
    layer: str | None = None
    batch_size: int | None = None
    names: Sequence[str] = ()
    lenient: bool = False
    references: Tensor | None = None
    output: OutputLike = logit

    def explained(self, files: Sequence[Path], skip: Skip, read: Read | None = None) -> Iterator[Explained]:
        """Yield one result per readable file, in order. `skip` gets a message per skipped file or method."""
        working = list(self.methods)
        height, width = self.preprocessing.size
        size = self.batch_size or min(_READ_TOGETHER, max(1, _READ_PIXELS // (height * width)))
        for start in range(0, len(files), size):
            images: Images = []
            for path in files[start : start + size]:
                try:
                    images.append((path, (read or self.preprocessing.picture)(path)))
                except FileError as error:
                    skip(str(error))
            if images:
                yield from self._batch(images, working, skip)

    def _batch(self, images: Images, working: list[str], skip: Skip) -> Iterator[Explained]:
        inputs = torch.stack([self.preprocessing.tensor(image) for _, image in images])
        with probing(self.model) as probe:
            logits = probe.logits(inputs).cpu()
        maps = self._maps(inputs, working, skip)
        classes, likelihoods = predicted(logits).tolist(), probabilities(logits.cpu().double())
        for row, (path, image) in enumerate(images):
            yield Explained(
                path, np.asarray(image.convert("RGB")), likelihoods[row], classes[row],
                classes[row] if self.target is None else self.target,
                {name: batch[row].float() for name, batch in maps.items()},
            )  # fmt: skip

    def _maps(self, inputs: Tensor, working: list[str], skip: Skip) -> dict[str, Tensor]:
        """Maps (N,H,W) by method. A method that fails is removed from `working`, if `lenient`."""
        maps: dict[str, Tensor] = {}
        for name in list(working):
            layer = missing_layer(methods.create(name), self.layer)
            try:
                maps[name] = explain(
                    self.model, inputs, name, self.prior, self.target, layer, self.batch_size,
                    references=self.references, nan="skip" if self.lenient else "raise", output=self.output,
                )  # fmt: skip
            except AGOPError as error:
                if not self.lenient:
                    raise
                working.remove(name)
                skip(f"{name}: {error}")
        return maps

    def caption(self, explained: Explained) -> str:
        """Predicted class, and the explained class if it is another one."""
        text = f"predicted {class_name(self.names, explained.predicted)}"
        if explained.target != explained.predicted:
            text += f", explained {class_name(self.names, explained.target)}"
        return text
