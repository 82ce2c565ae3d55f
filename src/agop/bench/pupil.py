"""Networks in training, with the hook. A network doesn't depend on those that are trained beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agop.bench.checkpoints import read_checkpoint, write_checkpoint
from agop.evaluating.scoring import accuracy
from agop.runs.rows import Row
from agop.scenarios import Recipe, Scenario, Split
from agop.statistic.agop import AGOP
from agop.statistic.hook import AGOPTrainingHook


@dataclass(frozen=True)
class Task:
    """What one network learns: its scenario, seed, data and folder; `watch` gives the rows of a snapshot."""

    scenario: Scenario
    seed: int
    training: Split
    validation: Split
    folder: Path
    watch: Callable[[nn.Module, AGOP], list[Row]] = lambda model, prior: []


@dataclass(frozen=True)
class Trained:
    """A trained network, the statistic of its training, the rows of its snapshots, and each attempt's accuracy.

    The prior of a network that wasn't trained is None.
    """

    model: nn.Module
    prior: AGOP | None
    noted: list[Row]
    # Validation accuracy of every training of this network. The last one counts, the others didn't learn the task.
    attempts: tuple[float, ...]
    learned: bool


@dataclass
class Pupil:
    """A network in training: `state` is its checkpoint, if there is one, `attempts` are accuracies of failed ones."""

    model: nn.Module
    task: Task
    hook: AGOPTrainingHook
    attempts: list[float] = field(default_factory=list)
    noted: list[Row] = field(default_factory=list)
    state: dict[str, Any] | None = None

    @classmethod
    def starting(cls, task: Task) -> Pupil:
        """A network with the weights and rows of its checkpoint, or an untrained one."""
        state = read_checkpoint(task.folder)
        if state is None:
            return cls._untrained(task, [])
        pupil = cls._untrained(task, list(state["attempts"]))
        pupil.model.load_state_dict(state["model"])
        pupil.hook.load_state_dict(state["hook"])
        pupil.noted, pupil.state = list(state["noted"]), state
        return pupil

    @classmethod
    def _untrained(cls, task: Task, attempts: list[float]) -> Pupil:
        """A network initialized from the seed of its task and the number of failed attempts."""
        torch.manual_seed(task.seed + 1_000_003 * len(attempts))
        model, recipe = task.scenario.network(), task.scenario.recipe
        every = recipe.snapshot_every or -(-len(task.training) // recipe.batch)
        hook = AGOPTrainingHook(
            model,
            every=recipe.hook_every,
            snapshot_every=every,
            snapshot_dir=task.folder / "snapshots",
            per_class=True,
            layer=getattr(task.scenario.network, "patch_layer", None),
        )
        return cls(model, task, hook, attempts)

    @property
    def epoch(self) -> int:
        """The next epoch to train."""
        return 0 if self.state is None else int(self.state["epoch"])

    def order(self, epoch: int) -> torch.Generator:
        """Random generator of an epoch, from the seed and the epoch alone."""
        return torch.Generator().manual_seed(self.task.seed * 100_003 + epoch)

    def note(self) -> None:
        """Append the rows of this step, if it has a snapshot."""
        if self.hook.steps % self.hook.snapshot_every == 0 and self.hook.count:
            rows = self.task.watch(self.model, self.hook.finalize())
            self.noted += [{"step": self.hook.steps, **row} for row in rows]

    def write(self, **more: Any) -> None:
        """Write a checkpoint with the state of the loop: epoch, optimizer, schedule, and what else it needs."""
        own = {"model": self.model.state_dict(), "hook": self.hook.state_dict()}
        self.state = own | {"attempts": self.attempts, "noted": self.noted} | more
        write_checkpoint(self.task.folder, self.state)

    def accuracy(self) -> float:
        """Accuracy on the validation data."""
        return accuracy(self.model, self.task.validation.images, self.task.validation.labels)

    @property
    def learned(self) -> bool:
        """True if the accuracy reaches the scenario's threshold."""
        return self.accuracy() >= self.task.scenario.learned

    def restarted(self) -> Pupil:
        """An untrained network with another initialization, after an attempt that didn't learn the task."""
        shutil.rmtree(self.task.folder, ignore_errors=True)  # snapshots and checkpoint of this attempt
        return self._untrained(self.task, [*self.attempts, self.accuracy()])

    def trained(self) -> Trained:
        """The trained network with its statistic."""
        attempts = (*self.attempts, self.accuracy())
        prior = self.hook.finalize() if self.hook.steps else None
        return Trained(self.model, prior, self.noted, attempts, self.learned)


def optimizer_for(
    parameters: list[torch.Tensor], recipe: Recipe, epochs: int, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The recipe's optimizer and schedule, for `steps` per epoch."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    # foreach: same arithmetic for every element, whatever its position in a stack; the fused kernel differs.
    optimizer = kind(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, foreach=True)
    if recipe.schedule == "one-cycle":
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe.learning_rate, epochs=epochs, steps_per_epoch=steps
        )
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
