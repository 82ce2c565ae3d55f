"""Models of the benchmark: trained on images with a plant, and what they do when it is added or missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from agop.bench.pupil import Task, Trained
from agop.bench.train import train
from agop.interventions.transplant import Transplant
from agop.model.probe import probing
from agop.networks import SmallResNet
from agop.scenarios.base import Recipe, Scenario, Splits
from agop.scenarios.colours import BLACK, WHITE
from agop.scenarios.shortcuts.task import PREVALENCES, Case, PlantedTask, Source
from agop.statistic.agop import AGOP

RECIPE = Recipe(
    epochs=8, batch=64, learning_rate=5e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle",
    snapshot_every=None, hook_every=8,
)  # fmt: skip
_ROWS = 256


def trained_model(
    case: Case, source: Source, task: PlantedTask, folder: Path, epochs: int, progress: Callable[[float], None]
) -> Trained:
    """A SmallResNet that has learned the task. Its checkpoints are in the folder."""
    scenario = Scenario(
        case.kind,
        "shortcuts",
        _no_splits,
        partial(SmallResNet, source.classes),
        layer="layer3",
        backgrounds=tuple(PREVALENCES),
        recipe=RECIPE,
        black=BLACK,
        white=WHITE,
    )
    return train([Task(scenario, case.seed, task.training, task.validation, folder)], epochs, progress)[0]


def _no_splits(background: str, seed: int, masks: str) -> Splits:
    raise NotImplementedError("a planted task has its own data")


@dataclass(frozen=True)
class Use:
    """How much a model uses its plant, on test images with and without it.

    `accuracy` is that on the test data. `drop` is the accuracy that the model loses if the images of the target class
    lose the plant and those of other classes get it. `change` is the mean rise of P(target) in images that get it.
    """

    accuracy: float
    drop: float
    change: float


def measured_use(model: nn.Module, task: PlantedTask) -> Use:
    """Accuracy with and without the plant, on the same images."""
    labels, of_target = task.test.labels, task.test.labels == task.target
    mixed, without, planted = (
        _probabilities(model, images) for images in (task.test.images, task.without, task.planted)
    )
    helped, misled = (
        torch.where(of_target[:, None], *pair).argmax(dim=1) == labels
        for pair in ((planted, without), (without, planted))
    )
    change = (planted - without)[~of_target, task.target]
    return Use(
        float((mixed.argmax(dim=1) == labels).double().mean()),
        float(helped.double().mean() - misled.double().mean()),
        float(change.mean()),
    )


@dataclass(frozen=True)
class AtPlant:
    """What happens at the place of a plant, whether it is there or not; None for plants without a fixed place.

    `share` is the mean of diag(M) there over its mean everywhere. `transplant` is the mean rise of P(target) when the
    place is pasted from test images of the target class into those of other classes.
    """

    fixed: bool
    share: float | None
    transplant: float | None


def measured_place(model: nn.Module, task: PlantedTask, prior: AGOP) -> AtPlant:
    """Diagonal and transplant at the place of the plant."""
    if task.plant.fixed is None:
        return AtPlant(False, None, None)
    region = torch.from_numpy(task.plant.fixed)
    diagonal = prior.diagonal.sum(dim=0)
    of_target = task.test.labels == task.target
    hosts, donors = task.test.images[~of_target], task.test.images[of_target]
    donors = donors[torch.arange(len(hosts)) % len(donors)]
    before, after = (_probabilities(model, images) for images in (hosts, Transplant(region).changed(hosts, donors)))
    return AtPlant(
        True, float(diagonal[region].mean() / diagonal.mean()), float((after - before)[:, task.target].mean())
    )


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    with probing(model) as probe:
        return torch.cat([probe.logits(part).double().softmax(dim=1) for part in torch.split(images, _ROWS)])
