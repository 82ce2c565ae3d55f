"""Train the networks of a bench."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from agop.bench.epochs import train_epochs
from agop.bench.pupil import Pupil, Task, Trained
from agop.bench.stacked import train_stacked
from agop.scenarios import Scenario

# Networks that haven't learned by this share of their epochs start again.
_JUDGED = 0.4


def train(
    tasks: Sequence[Task], epochs: int, progress: Callable[[float], None], restarts: int | None = None
) -> list[Trained]:
    """Train one network per task by its scenario's recipe, together if the network class supports it.

    A network whose validation accuracy is below the scenario's threshold after some epochs is trained again from
    another initialization, at most `restarts` times. None: the threshold isn't used. With 0 epochs, networks keep
    their random weights.
    """
    pupils = [Pupil.starting(task) for task in tasks]
    if epochs == 0:
        return [pupil.trained() for pupil in pupils]
    judged = epochs if restarts is None else min(epochs, math.ceil(_JUDGED * epochs))
    waiting = pupils
    while waiting and restarts is not None:
        attempt = min(len(pupil.attempts) for pupil in waiting)
        for done in _train_all(waiting, epochs, judged):
            progress(_JUDGED * (1 - 0.5 ** (attempt + done)))  # the number of restarts isn't known in advance
        waiting = [p for p in waiting if not p.learned and len(p.attempts) < restarts]
        again = {id(pupil): pupil.restarted() for pupil in waiting}
        pupils, waiting = [again.get(id(pupil), pupil) for pupil in pupils], list(again.values())
    for done in _train_all(pupils, epochs, epochs):
        progress(done if restarts is None else _JUDGED + (1 - _JUDGED) * done)
    return [pupil.trained() for pupil in pupils]


def stack_key(scenario: Scenario) -> object | None:
    """Networks of scenarios with the same key train as one stack. None: each network trains alone."""
    together = getattr(scenario.network, "stacked_forward", None)
    return None if together is None else (scenario.network, scenario.recipe)


def _train_all(pupils: Sequence[Pupil], epochs: int, until: int) -> Iterator[float]:
    """Train all networks up to an epoch and yield the fraction done."""
    done = 0
    for stack in _stacks(pupils):
        scenario = stack[0].task.scenario
        if stack_key(scenario) is None:
            fractions = train_epochs(stack[0], scenario.recipe, epochs, until)
        else:
            fractions = train_stacked(stack, scenario.network, scenario.recipe, epochs, until)
        for fraction in fractions:
            yield (done + len(stack) * fraction) / len(pupils)
        done += len(stack)


def _stacks(pupils: Sequence[Pupil]) -> list[list[Pupil]]:
    """Networks that train together: of one class and recipe, and at the same epoch."""
    keys = {id(pupil): (stack_key(pupil.task.scenario) or id(pupil), pupil.epoch) for pupil in pupils}
    order = {key: place for place, key in enumerate(dict.fromkeys(keys.values()))}
    ordered = sorted(pupils, key=lambda pupil: order[keys[id(pupil)]])
    return [list(stack) for _, stack in groupby(ordered, key=lambda pupil: keys[id(pupil)])]
