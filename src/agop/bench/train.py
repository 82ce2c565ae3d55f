"""Train the networks of a bench by their recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agop.bench.epochs import taught
from agop.bench.pupil import Pupil, Task, Trained
from agop.bench.stacked import taught_together
from agop.scenarios import Scenario


def train(scenario: Scenario, tasks: Sequence[Task], epochs: int, progress: Callable[[float], None]) -> list[Trained]:
    """The networks of these tasks, trained by the scenario's recipe."""
    pupils = [Pupil.starting(scenario, task) for task in tasks]
    together = getattr(scenario.network, "together", None)
    if together is not None:
        for done in taught_together(pupils, together, scenario.recipe, epochs):
            progress(done)
    else:
        for place, pupil in enumerate(pupils):
            for done in taught(pupil, scenario.recipe, epochs):
                progress((place + done) / len(pupils))
    return [pupil.trained() for pupil in pupils]
