"""Networks in training, with the hook. A network doesn't depend on those that are trained beside it."""

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
    """What one network learns: its seed, data and folder; `watch` gives the rows of a snapshot."""

    seed: int
    training: Split
    validation: Split
    folder: Path
    watch: Callable[[nn.Module, AGOP], list[Row]] = lambda model, prior: []


@dataclass(frozen=True)
class Trained:
    """A trained network, the statistic of its training, and the rows of its snapshots."""

    model: nn.Module
    prior: AGOP
    noted: list[Row]


@dataclass
class Pupil:
    """A network in training."""

    model: nn.Module
    task: Task
    hook: AGOPTrainingHook
    noted: list[Row] = field(default_factory=list)

    @classmethod
    def starting(cls, scenario: Scenario, task: Task) -> Pupil:
        """An untrained network, initialized from the seed of its task."""
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
        """Random generator of an epoch, from the seed and the epoch alone."""
        return torch.Generator().manual_seed(self.task.seed * 100_003 + epoch)

    def note(self) -> None:
        """Append the rows of this step, if it has a snapshot."""
        if self.hook.steps % self.hook.snapshot_every == 0 and self.hook.count:
            rows = self.task.watch(self.model, self.hook.finalize())
            self.noted += [{"step": self.hook.steps, **row} for row in rows]

    def trained(self) -> Trained:
        """The trained network with its statistic."""
        return Trained(self.model, self.hook.finalize(), self.noted)


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
