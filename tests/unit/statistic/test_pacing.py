"""every="auto": passes take at most 15 % of the training's time, at equal distances, also after resuming."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import agop
from agop.statistic.pacing import AutoPace
from tests import zoo


class Training:
    """A training on a clock of its own: a step takes 1, a pass `cost`."""

    def __init__(self, cost, pace=None):
        self.time, self.cost, self.passes = 0.0, cost, []
        self.pace = pace or AutoPace(lambda: self.time)

    def run(self, steps):
        for step in steps:
            self.time += 1
            with self.pace.call(step) as due:
                if due:
                    self.time += self.cost
                    self.passes.append(step)
        return self


@pytest.mark.parametrize("cost", [0.05, 0.5, 1, 1.19, 3, 40])
def test_passes_take_at_most_15_percent_once_they_are_measured(cost):
    passes = [step for step in Training(cost).run(range(5000)).passes if step > 64]
    assert len(passes) * cost <= 0.15 * 5000
    assert len(passes) * cost > 0.09 * 5000 or cost < 0.12


@pytest.mark.parametrize("cost", [0.05, 0.5, 1, 3])
def test_passes_are_at_equal_distances(cost):
    passes = Training(cost).run(range(500)).passes
    assert passes[:9] == [*range(0, 65, 8)]
    assert len({b - a for a, b in pairwise(passes[8:])}) == 1


@pytest.mark.parametrize("stop", [3, 20, 65, 100])
def test_a_resumed_training_keeps_its_distances(stop):
    first = Training(0.75).run(range(stop))
    second = Training(0.75)
    second.pace.load(first.pace.state())
    together = first.passes + second.run(range(stop, 400)).passes
    distances = [b - a for a, b in pairwise(together)]
    assert set(distances) <= {8}  # 0.75 / 0.10, rounded up


def test_a_pass_that_raises_is_due_again():
    training = Training(1)
    with pytest.raises(ZeroDivisionError), training.pace.call(0):
        raise ZeroDivisionError
    assert training.run([1]).passes == [1]


def test_the_hook_counts_the_batches_of_its_passes_and_resumes_from_a_checkpoint(tmp_path):
    model, images = zoo.build("plain"), zoo.images(8)
    hook = agop.AGOPTrainingHook(model, every="auto", only_correct=False)
    for _ in range(20):
        hook.step(images)
    assert hook.count == 3 * 8  # calls 0, 8 and 16
    torch.save(hook.state_dict(), tmp_path / "hook.pt")
    resumed = agop.AGOPTrainingHook(model, every="auto", only_correct=False)
    resumed.load_state_dict(torch.load(tmp_path / "hook.pt", weights_only=True))
    for _ in range(20, 25):
        resumed.step(images)
    assert resumed.count == 4 * 8  # and call 24
    assert resumed.finalize().provenance.options["every"] == "auto"


@pytest.mark.parametrize("every", ["always", 0, 1.5])
def test_other_values_raise(every):
    with pytest.raises(agop.AGOPError, match="give a positive integer or 'auto'"):
        agop.AGOPTrainingHook(nn.Linear(2, 2), every=every)
