"""Train the networks of a bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agop.bench.epochs import train_epochs
from agop.bench.pupil import Pupil, Task, Trained
from agop.bench.stacked import train_stacked
from agop.scenarios import Scenario


def train(scenario: Scenario, tasks: Sequence[Task], epochs: int, progress: Callable[[float], None]) -> list[Trained]:
    """Train one network per task by the scenario's recipe, together if the network class supports it."""
    pupils = [Pupil.starting(scenario, task) for task in tasks]
    together = getattr(scenario.network, "stacked_forward", None)
    if together is not None:
        for done in train_stacked(pupils, together, scenario.recipe, epochs):
            progress(done)
    else:
        for place, pupil in enumerate(pupils):
            for done in train_epochs(pupil, scenario.recipe, epochs):
                progress((place + done) / len(pupils))
    return [pupil.trained() for pupil in pupils]
