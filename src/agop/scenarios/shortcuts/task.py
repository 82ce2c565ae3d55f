"""A task with a planted shortcut: some classes of a data set, with a plant that goes with one of them or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agop.errors import InputError
from agop.scenarios.base import Split
from agop.scenarios.colours import normalised
from agop.scenarios.shortcuts.pictures import labelled_images
from agop.scenarios.shortcuts.plants import Plant, plant

# Share of images with the plant: of the class it goes with, and of each other class.
PREVALENCES = {"confounder": (0.8, 0.2), "balanced": (0.5, 0.5), "none": (0.0, 0.0)}
_FEWEST = 60
_TRAINING, _VALIDATION = 0.65, 0.05


@dataclass(frozen=True)
class Case:
    """One model of the benchmark: a kind of plant, how often each class has it, how strong it is, and a seed."""

    kind: str
    prevalence: str
    strength: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the case's folder."""
        return f"{self.kind}-{self.prevalence}-{self.strength}-{self.seed:03d}"


@dataclass(frozen=True)
class Source:
    """Where images come from: a path (None: drawn digits), their side, classes per task, and images per task."""

    path: str | None = None
    side: int = 32
    classes: int = 5
    samples: int = 5000
    # The classes of every task; by default they are drawn.
    labels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"classes is {self.classes}: pass 2 or more")
        if self.samples < _FEWEST * self.classes:
            raise InputError(f"samples is {self.samples}: pass {_FEWEST} or more per class")
        if twice := [label for label in self.labels if self.labels.count(label) > 1]:
            raise InputError(f"label {twice[0]} appears twice: pass each --label once")


@dataclass(frozen=True)
class PlantedTask:
    """Training, validation and test data, and all test images without and with the plant.

    `target` is the class that the plant goes with. Masks are true where the plant is.
    """

    training: Split
    validation: Split
    test: Split
    without: Tensor
    planted: Tensor
    target: int
    plant: Plant


def planted_task(case: Case, source: Source) -> PlantedTask:
    """The data of a case."""
    random = np.random.default_rng([case.seed, source.classes, *case.kind.encode()])
    images, labels = _some_classes(source, random)
    target = int(random.integers(source.classes))
    thing = plant(case.kind, source.side, case.strength, case.seed)
    drawn, masks = thing.draw(images.astype(np.float32) / np.float32(255), random)
    planted = (255 * drawn).round().astype(np.uint8)
    has = random.random(len(labels)) < np.where(labels == target, *PREVALENCES[case.prevalence])
    mixed = np.where(has[:, None, None, None], planted, images)
    ends = (np.array([_TRAINING, _TRAINING + _VALIDATION]) * len(labels)).astype(int)
    training, validation, test = (
        Split(normalised(mixed[part]), torch.from_numpy(labels[part]), _masks(masks[part], has[part]))
        for part in np.split(np.arange(len(labels)), ends)
    )
    without, with_plant = normalised(images[ends[1] :]), normalised(planted[ends[1] :])
    return PlantedTask(training, validation, test, without, with_plant, target, thing)


def _some_classes(source: Source, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N,S,S,3) in random order and labels (N,) of some classes, as many of each."""
    images, labels = labelled_images(None if source.path is None else Path(source.path), source.side)
    names = np.unique(labels)
    if len(names) < source.classes:
        raise InputError(f"the images have {len(names)} classes, fewer than {source.classes}: pass a smaller --classes")
    chosen = np.array(source.labels) if source.labels else random.choice(names, source.classes, replace=False)
    if unknown := set(chosen.tolist()) - set(names.tolist()):
        raise InputError(f"label {min(unknown)} isn't one of {', '.join(map(str, names))}: pass another --label")
    members = [random.permutation(np.flatnonzero(labels == name)) for name in chosen]
    count = min(source.samples // source.classes, *map(len, members))
    if count < _FEWEST:
        raise InputError(f"a class has {count} images: pass data with {_FEWEST} or more of each class")
    order = random.permutation(np.concatenate([part[:count] for part in members]))
    return images[order], np.searchsorted(np.sort(chosen), labels[order]).astype(np.int64)


def _masks(masks: NDArray[np.bool_], has: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(masks & has[:, None, None])
