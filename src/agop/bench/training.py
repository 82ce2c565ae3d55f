"""The trainings of a bench, with the hook: one network, or the networks of several seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from agop.gradients import Gradients, derivative
from agop.scenarios import Recipe, Scenario, Split
from agop.statistic import AGOP
from agop.targets import predicted
from agop.training import AGOPTrainingHook

SNAPSHOT_EVERY = 100
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What one network learns: its seed, its data, and the folder of its snapshots."""

    seed: int
    training: Split
    validation: Split
    snapshots: Path


@dataclass(frozen=True)
class Moment:
    """Validation accuracy and weights at a snapshot."""

    accuracy: float
    weights: Weights


@dataclass(frozen=True)
class Trained:
    """A trained network, its statistic, and the moments of its snapshots by step."""

    model: nn.Module
    prior: AGOP
    history: dict[int, Moment]


@dataclass
class _Pupil:
    """A network at its task."""

    model: nn.Module
    task: Task
    order: torch.Generator
    hook: AGOPTrainingHook
    history: dict[int, Moment] = field(default_factory=dict)

    @classmethod
    def starting(cls, scenario: Scenario, task: Task) -> _Pupil:
        torch.manual_seed(task.seed)
        model = scenario.network()
        hook = AGOPTrainingHook(model, snapshot_every=SNAPSHOT_EVERY, snapshot_dir=task.snapshots)
        return cls(model, task, torch.Generator().manual_seed(task.seed), hook)

    def remember(self) -> None:
        if self.hook.steps % SNAPSHOT_EVERY == 0:
            weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.history[self.hook.steps] = Moment(accuracy(self.model, self.task.validation), weights)


def train(scenario: Scenario, tasks: Sequence[Task], epochs: int, progress: Callable[[float], None]) -> list[Trained]:
    """Networks trained by the scenario's recipe; a network does not depend on those trained beside it."""
    pupils = [_Pupil.starting(scenario, task) for task in tasks]
    together = getattr(scenario.network, "together", None)
    if together is not None:
        for done in _taught_together(pupils, together, scenario.recipe, epochs):
            progress(done)
    else:
        for place, pupil in enumerate(pupils):
            for done in _taught(pupil, scenario.recipe, epochs):
                progress((place + done) / len(pupils))
    return [Trained(pupil.model, pupil.hook.finalize(), pupil.history) for pupil in pupils]


def _taught(pupil: _Pupil, recipe: Recipe, epochs: int) -> Iterator[float]:
    """Train a network, epoch by epoch; the share that is done."""
    data = pupil.task.training
    optimizer, schedule = _optimizer(list(pupil.model.parameters()), recipe, epochs)
    for epoch in range(epochs):
        for rows in torch.split(torch.randperm(len(data), generator=pupil.order), recipe.batch):
            images, labels = data.images[rows], data.labels[rows]
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(pupil.model(images), labels))
            pupil.hook.step(images, labels)
            optimizer.step()
            pupil.remember()
        schedule.step()
        yield (epoch + 1) / epochs


def _taught_together(
    pupils: Sequence[_Pupil], together: Callable[[Weights, Tensor], Tensor], recipe: Recipe, epochs: int
) -> Iterator[float]:
    """As `_taught` for each, but a step is one forward pass of all, and backward once to weights, once to images."""
    weights = stacked([pupil.model for pupil in pupils])
    images, labels = (
        torch.stack([getattr(pupil.task.training, part) for pupil in pupils]) for part in ("images", "labels")
    )
    which = torch.arange(len(pupils))[:, None]
    optimizer, schedule = _optimizer(list(weights.values()), recipe, epochs)
    for epoch in range(epochs):
        orders = torch.stack([torch.randperm(labels.shape[1], generator=pupil.order) for pupil in pupils])
        for rows in torch.split(orders, recipe.batch, dim=1):
            truth = labels[which, rows]
            found = _backward(together, weights, images[which, rows], truth)
            for pupil, gradients, right in zip(pupils, found, truth, strict=True):
                pupil.hook.add(gradients, right)
            optimizer.step()
            for pupil in pupils:
                pupil.remember()
        schedule.step()
        yield (epoch + 1) / epochs


def _backward(
    together: Callable[[Weights, Tensor], Tensor], weights: Weights, images: Tensor, labels: Tensor
) -> list[Gradients]:
    """Set the weights' gradients of the mean loss of each network, and give the images' gradients."""
    leaf = images.flatten(0, 1).requires_grad_()
    logits = together(weights, leaf.reshape(images.shape)).flatten(0, 1)
    loss = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / labels.shape[1]
    found = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
    for weight, gradient in zip(weights.values(), found, strict=True):
        weight.grad = gradient
    targets = predicted(logits.detach())
    parts = (derivative(logits, targets, leaf), logits.detach(), targets)
    return [Gradients(*part) for part in zip(*(torch.split(p, labels.shape[1]) for p in parts), strict=True)]


def stacked(models: Sequence[nn.Module]) -> Weights:
    """The models' parameters stacked (S,…); theirs become views of these, so that both are always the same."""
    names = [name for name, _ in models[0].named_parameters()]
    stacks = {name: torch.stack([model.get_parameter(name).detach() for model in models]) for name in names}
    for place, model in enumerate(models):
        for name, stack in stacks.items():
            model.get_parameter(name).data = stack[place]
    return {name: stack.requires_grad_() for name, stack in stacks.items()}


def _optimizer(
    parameters: list[Tensor], recipe: Recipe, epochs: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    # foreach: its arithmetic is the same for every element, wherever it stands in a stack; the fused kernel's is not.
    optimizer = torch.optim.Adam(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, foreach=True)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)


def accuracy(model: nn.Module, data: Split) -> float:
    """The share of images that the model classifies as labelled."""
    with torch.no_grad():
        return float((model(data.images).argmax(1) == data.labels).double().mean())
