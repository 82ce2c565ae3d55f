"""A loaded model, and what it says about uploaded pictures: everything the page shows, without the page."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from agop import methods
from agop.app.fields import Fields, names_in
from agop.app.uploads import MOST_FILES, prepared
from agop.errors import AGOPError, AGOPWarning, FileError, InputError
from agop.explaining.explain import explain
from agop.methods.base import takes_layer
from agop.model.probe import probing
from agop.model.targets import probabilities
from agop.pictures.explained import Explained
from agop.pictures.preprocessing import Preprocessing
from agop.registry import unknown_name_error
from agop.statistic.agop import AGOP

_BATCH, _SHOWN_CLASSES = 8, 5
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Loaded:
    """A model that has been run once, with its AGOP file and the names of its classes."""

    fields: Fields
    model: nn.Module
    preprocessing: Preprocessing
    prior: AGOP | None
    classes: int
    names: tuple[str, ...]

    @classmethod
    def tried(cls, fields: Fields, model: nn.Module, how: Preprocessing, prior: AGOP | None) -> Loaded:
        """The model, after a picture of zeros has gone through it and the prior was found to fit."""
        zeros = torch.zeros(1, 1 if how.gray else 3, *how.size)
        with probing(model) as probe:
            classes = probabilities(probe.logits(zeros)).shape[1]
        if prior is not None:
            prior.check(model, zeros)
        return cls(fields, model, how, prior, classes, _names(fields, prior, classes))

    def offered(self) -> list[str]:
        """The methods that can be used: those that need an AGOP file only if there is one."""
        return [name for name in methods.names() if self.prior is not None or not methods.get(name).needs_prior]

    def name(self, index: int) -> str:
        """What a class is called."""
        return self.names[index] if self.names else f"class {index}"


@dataclass(frozen=True)
class Result:
    """A picture with its maps, and the likeliest classes with their probabilities."""

    explained: Explained
    likeliest: list[tuple[str, float]]


@dataclass(frozen=True)
class Outcome:
    """The pictures that could be explained, those that could not, and what to know about the others, a line each."""

    loaded: Loaded
    methods: list[str]
    results: list[Result] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Session:
    """The model the page talks to. One thing at a time: a model is held still while it is asked."""

    def __init__(self, load: Callable[[Fields], Loaded], fields: Fields) -> None:
        self._load, self._lock = load, threading.Lock()
        self.stopping = threading.Event()
        self.loaded = load(fields)

    @property
    def busy(self) -> bool:
        """True while a model is loaded or asked."""
        return self._lock.locked()

    def load(self, fields: Fields) -> list[str]:
        """Load another model, or raise and keep the one there is; gives what to know about it."""
        with self._lock, _noted() as notes:
            self.loaded = self._load(fields)
        return notes

    def explain(self, files: Sequence[Path], chosen: Sequence[str], report: Report = lambda *_: None) -> Outcome:
        """Explain the files by the chosen methods; what cannot be read or explained is left out, with a line."""
        with self._lock, _noted() as notes:
            outcome = Outcome(self.loaded, _allowed(self.loaded, chosen))
            pictures = list(_readable(files, outcome))
            for start in range(0, len(pictures), _BATCH):
                report(start / len(pictures), f"picture {start + 1} of {len(pictures)}")
                outcome.results.extend(self._explained(pictures[start : start + _BATCH], outcome))
        outcome.notes.extend(notes)
        return outcome

    def _explained(self, pictures: list[tuple[str, Image.Image]], outcome: Outcome) -> Iterator[Result]:
        loaded = outcome.loaded
        images = torch.stack([loaded.preprocessing.tensor(picture) for _, picture in pictures])
        with probing(loaded.model) as probe:
            likely = probabilities(probe.logits(images).double().cpu())
        maps: dict[str, Tensor] = {}
        for name in list(outcome.methods):
            if self.stopping.is_set():
                raise InputError("the page is being closed: start `agop app` again")
            maps |= _maps(name, images, outcome)
        for row, (name, picture) in enumerate(pictures):
            yield _result(name, picture, likely[row], {method: batch[row] for method, batch in maps.items()}, loaded)


def _names(fields: Fields, prior: AGOP | None, classes: int) -> tuple[str, ...]:
    """The names of a file; else those of the class folders an AGOP file was made from; else none."""
    given = names_in(fields.names)
    if given and len(given) != classes:
        raise InputError(f"{fields.names} names {len(given)} classes, the model has {classes}: give one name a line")
    folders = () if prior is None else prior.provenance.data.classes
    return given or (folders if len(folders) == classes else ())


def _allowed(loaded: Loaded, chosen: Sequence[str]) -> list[str]:
    if not chosen:
        raise InputError("no method is chosen: tick at least one")
    for name in chosen:
        if name not in methods.names():  # a page must not have a module of this machine imported
            raise unknown_name_error("method", name, loaded.offered())
        if methods.get(name).needs_prior and loaded.prior is None:
            raise InputError(f"{name} needs an AGOP file of this model: make one with `agop fit`, and load it above")
    return [name for name in methods.names() if name in chosen]


def _readable(files: Sequence[Path], outcome: Outcome) -> Iterator[tuple[str, Image.Image]]:
    """Names and pictures of the files that are some; the others become lines."""
    if len(files) > MOST_FILES:
        outcome.refused.append(f"{len(files)} files are too many: only the first {MOST_FILES} are explained")
    for path in files[:MOST_FILES]:
        try:
            yield path.name, prepared(path, outcome.loaded.preprocessing)
        except FileError as error:
            outcome.refused.append(str(error))


def _result(name: str, picture: Image.Image, likely: Tensor, maps: dict[str, Tensor], loaded: Loaded) -> Result:
    values, classes = likely.topk(min(_SHOWN_CLASSES, len(likely)))
    index, probability = int(classes[0]), round(float(values[0]), 6)
    found = {method: saliency.float() for method, saliency in maps.items()}
    explained = Explained(Path(name), np.asarray(picture.convert("RGB")), index, probability, index, found)
    likeliest = [(loaded.name(int(c)), float(value)) for c, value in zip(classes, values, strict=True)]
    return Result(explained, likeliest)


def _maps(name: str, images: Tensor, outcome: Outcome) -> dict[str, Tensor]:
    """The maps (N,H,W) of a method by its name; a method that cannot explain this model is left out from then on."""
    loaded = outcome.loaded
    layer = loaded.fields.layer or None if takes_layer(methods.get(name)) else None
    try:
        return {name: explain(loaded.model, images, name, loaded.prior, layer=layer, batch_size=32, nan="skip")}
    except AGOPError as error:
        outcome.methods.remove(name)
        outcome.refused.append(f"{name}: {error}")
        return {}


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Fills, at the end, with what agop warned about inside, each once."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += dict.fromkeys(str(warning.message) for warning in caught if warning.category is AGOPWarning)
