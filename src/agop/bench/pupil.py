"""The trainings of a bench, with the hook. A network does not depend on those trained beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from agop.runs.rows import Row
from agop.scenarios import Recipe, Scenario, Split
from agop.statistic.agop import AGOP
from agop.statistic.hook import AGOPTrainingHook


@dataclass(frozen=True)
class Task:
    """What one network learns: its seed, its data, its folder, and what to note at each snapshot."""

    seed: int
    training: Split
    validation: Split
    folder: Path
    watch: Callable[[nn.Module, AGOP], list[Row]] = lambda model, prior: []


@dataclass(frozen=True)
class Trained:
    """A trained network, the statistic of its training, and what was noted on the way."""

    model: nn.Module
    prior: AGOP
    noted: list[Row]


@dataclass
class Pupil:
    """A network at its task."""

    model: nn.Module
    task: Task
    hook: AGOPTrainingHook
    noted: list[Row] = field(default_factory=list)

    @classmethod
    def starting(cls, scenario: Scenario, task: Task) -> Pupil:
        """A network with the weights of its seed."""
        torch.manual_seed(task.seed)
        model, recipe = scenario.network(), scenario.recipe
        every = recipe.snapshot_every or -(-len(task.training) // recipe.batch)
        hook = AGOPTrainingHook(
            model,
            every=recipe.hook_every,
            snapshot_every=every,
            snapshot_dir=task.folder / "snapshots",
            per_class=True,
        )
        return cls(model, task, hook)

    def order(self, epoch: int) -> torch.Generator:
        """The randomness of an epoch: nothing but the seed and the epoch decide it."""
        return torch.Generator().manual_seed(self.task.seed * 100_003 + epoch)

    def note(self) -> None:
        """At a snapshot, what the task wants to know."""
        if self.hook.steps % self.hook.snapshot_every == 0 and self.hook.count:
            rows = self.task.watch(self.model, self.hook.finalize())
            self.noted += [{"step": self.hook.steps, **row} for row in rows]

    def trained(self) -> Trained:
        """What became of it."""
        return Trained(self.model, self.hook.finalize(), self.noted)


def optimizer_for(
    parameters: list[torch.Tensor], recipe: Recipe, epochs: int, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The recipe's optimizer and schedule; `steps` an epoch."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    # foreach: its arithmetic is the same for every element, wherever it stands in a stack; the fused kernel's is not.
    optimizer = kind(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, foreach=True)
    if recipe.schedule == "one-cycle":
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe.learning_rate, epochs=epochs, steps_per_epoch=steps
        )
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
