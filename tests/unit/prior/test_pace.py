"""every="auto": passes take at most 15 % of the training's time, and an estimate says whether they were enough."""

import math
import re
import time
from itertools import pairwise

import pytest
import torch

import agop
from agop.collect.hook import Convergence, Pace
from agop.integrations.callback import state_for_this_rank
from agop.model.probe import Gradients
from tests import zoo


class Training:
    """A training on a clock of its own: a step takes 1, a pass `cost`."""

    def __init__(self, cost):
        self.time, self.cost, self.passes, self.weights = 0.0, cost, [], []
        self.pace = Pace("auto", lambda: self.time, self.weigh)

    def weigh(self, weight):
        self.weights = [weight * own for own in self.weights]

    def run(self, steps):
        for step in steps:
            self.time += 1
            with self.pace.call(step) as due:
                if due:
                    self.time += self.cost
                    self.passes.append(step)
                    self.weights.append(1.0)
        return self


@pytest.mark.parametrize("cost", [0.05, 0.5, 1, 1.19, 3, 40])
def test_passes_are_at_equal_distances_and_take_at_most_15_percent_once_they_are_measured(cost):
    passes = Training(cost).run(range(5000)).passes
    assert passes[:9] == [*range(0, 65, 8)]
    assert len({b - a for a, b in pairwise(passes[9:])}) == 1
    assert len(passes[9:]) * cost <= 0.15 * 5000
    assert len(passes[9:]) * cost > 0.09 * 5000 or cost < 0.12


@pytest.mark.parametrize("cost", [0.05, 0.5, 3, 10])
@pytest.mark.parametrize("part", [68, 400, 1500, 3000])
def test_every_part_of_the_training_counts_alike(cost, part):
    """Weights of the passes in a part of the training, in calls."""
    training = Training(cost).run(range(3000))
    interval = training.passes[-1] - training.passes[-2]
    weight = interval * sum(own for step, own in zip(training.passes, training.weights, strict=True) if step < part)
    assert weight == pytest.approx(part, abs=4 + interval / 2)


def test_a_diagonal_that_drifts_is_that_of_all_batches(monkeypatch):
    """Gradients that are large at first. Counted with equal weights, the first passes would dominate: cosine 0.8."""
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))  # a pass takes as long as a step: every tenth
    hook = agop.AGOPTrainingHook(zoo.build("plain"), every="auto", only_correct=False)
    total = torch.zeros(3, 12, 12)
    random = torch.Generator().manual_seed(0)
    for step in range(2000):
        gradients = 0.1 * torch.rand(2, 3, 12, 12, generator=random)
        gradients[:, 0] += 10 * math.exp(-step / 40)
        gradients[:, 1] += 1
        total += gradients.square().sum(dim=0)
        hook.add(Gradients(gradients, torch.zeros(2, 3), torch.zeros(2).long()))
    truth = torch.cosine_similarity(hook.finalize().diagonal.flatten(), total.double().flatten(), dim=0)
    assert truth > 0.99
    assert abs(hook.convergence - float(truth)) < 0.01


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


def passes(count, noise, seed):
    """Positive sums (C,H,W) of passes around one diagonal, and this diagonal."""
    generator = torch.Generator().manual_seed(seed)
    diagonal = torch.rand(3, 16, 16, generator=generator, dtype=torch.float64) ** 4
    factors = torch.randn(count, 3, 16, 16, generator=generator, dtype=torch.float64)
    return diagonal * (noise * factors - noise**2 / 2).exp(), diagonal


def convergence(sums):
    estimate = Convergence()
    for total in sums.cumsum(0):
        estimate.add(total)
    return estimate


def sine(cosine):
    return math.sqrt(1 - cosine**2)


@pytest.mark.parametrize("count", [4, 15, 40])
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_estimate_is_the_cosine_with_the_diagonal_of_all_batches(count, noise):
    sums, diagonal = passes(count, noise, seed=count)
    true = float(torch.cosine_similarity(sums.sum(0).flatten(), diagonal.flatten(), dim=0))
    assert sine(convergence(sums).cosine()) == pytest.approx(sine(true), rel=0.25)


def test_ranks_share_the_noise():
    sums, diagonal = passes(24, 1.0, seed=1)
    true = float(torch.cosine_similarity(sums.sum(0).flatten(), diagonal.flatten(), dim=0))
    assert sine(convergence(sums[:6]).cosine(ranks=4)) == pytest.approx(sine(true), rel=0.25)


def test_no_estimate_before_two_passes_with_a_gradient():
    sums, _ = passes(2, 1.0, seed=0)
    assert convergence(sums[:1]).cosine() is None
    sums[0] = 0
    assert convergence(sums).cosine() is None


def test_estimate_does_not_depend_on_the_scale_of_gradients():
    sums, _ = passes(4, 1.0, seed=0)
    assert convergence(sums * 1e-20).cosine() == pytest.approx(convergence(sums).cosine())


def test_without_a_state_only_later_passes_are_compared():
    sums, _ = passes(9, 1.0, seed=0)
    resumed, totals = convergence(sums[:2]), sums.cumsum(0)
    resumed.load(None, totals[4])
    for total in totals[5:]:
        resumed.add(total)
    assert resumed.cosine() == pytest.approx(convergence(sums[5:]).cosine())


def auto_hook(steps, state=None):
    """A hook with every="auto" up to this number of steps, each with images of its own."""
    hook = agop.AGOPTrainingHook(zoo.build("plain"), every="auto", only_correct=False)
    if state is not None:
        hook.load_state_dict(state)
    for step in range(hook.steps, steps):
        hook.step(zoo.images(2, seed=step))
    return hook


def warning_of(hook):
    with pytest.warns(agop.AGOPWarning) as warnings:
        hook.finalize()
    return str(warnings[0].message)


def test_the_hook_warns_if_diag_m_of_its_batches_may_differ_from_that_of_all():
    assert re.search(r"all 9 batches, .* \(estimated cosine 0\.\d\d\): train", warning_of(auto_hook(9)))
    assert "all 8 batches, of which every='auto' skips many (too few were used" in warning_of(auto_hook(8))
    auto_hook(1).finalize()  # all batches


def test_the_hook_does_not_warn_once_diag_m_has_converged():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), every="auto", only_correct=False)
    for _ in range(9):
        hook.step(zoo.images(2))
    assert hook.finalize().provenance.options["every"] == "auto"


def test_a_resumed_hook_counts_and_warns_like_one_that_was_not_interrupted(tmp_path):
    torch.save(auto_hook(10).state_dict(), tmp_path / "hook.pt")
    resumed, whole = auto_hook(18, torch.load(tmp_path / "hook.pt", weights_only=True)), auto_hook(18)
    assert resumed.count == whole.count == 3 * 2  # calls 0, 8 and 16
    assert warning_of(resumed) == warning_of(whole)


def test_the_state_of_another_number_of_ranks_starts_a_new_estimate():
    resumed = auto_hook(17, state_for_this_rank([auto_hook(17).state_dict(), auto_hook(17).state_dict()]))
    assert resumed.steps == 17
    assert resumed.convergence is None
