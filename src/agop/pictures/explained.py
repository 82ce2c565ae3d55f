"""The explaining loop: image files → predictions and maps. `agop explain` and the app both use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from agop import methods
from agop.errors import AGOPError, FileError
from agop.explaining.explain import explain
from agop.methods.base import missing_layer
from agop.model.probe import probing
from agop.model.targets import PREDICTED, predicted, probabilities
from agop.pictures.class_names import class_name
from agop.pictures.heat import Picture
from agop.pictures.image_files import Skip
from agop.pictures.preprocessing import Preprocessing
from agop.statistic.agop import AGOP

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
    output: str = PREDICTED

    def explained(self, files: Sequence[Path], skip: Skip, read: Read | None = None) -> Iterator[Explained]:
        """Yield one result per readable file, in order. `skip` gets a message per skipped file or method."""
        working = list(self.methods)
        height, width = self.preprocessing.size
        size = self.batch_size or min(_READ_TOGETHER, max(1, _READ_PIXELS // (height * width)))
        for start in range(0, len(files), size):
            images = list(_readable(files[start : start + size], read or self.preprocessing.picture, skip))
            if images:
                yield from self._batch(images, working, skip)

    def _batch(self, images: Images, working: list[str], skip: Skip) -> Iterator[Explained]:
        inputs = torch.stack([self.preprocessing.tensor(image) for _, image in images])
        with probing(self.model) as probe:
            logits = probe.logits(inputs).cpu()
        maps = self._maps(inputs, working, skip)
        classes, likelihoods = predicted(logits).tolist(), probabilities(logits.double())
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
            nan = "skip" if self.lenient else "raise"
            try:
                maps[name] = explain(
                    self.model, inputs, name, self.prior, self.target, layer, self.batch_size,
                    references=self.references, nan=nan, output=self.output,
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


def _readable(files: Iterable[Path], read: Read, skip: Skip) -> Iterator[tuple[Path, Image.Image]]:
    for path in files:
        try:
            yield path, read(path)
        except FileError as error:
            skip(str(error))
