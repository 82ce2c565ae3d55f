"""Convergence of diag(M) with every="auto": an estimate from the passes alone, and a warning if it's low."""

import math
import re

import pytest
import torch

import agop
from agop.interop.states import state_for_this_rank
from agop.statistic.convergence import Convergence
from tests import zoo


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


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_resumed_estimate_is_the_same(stop):
    sums, _ = passes(9, 1.0, seed=0)
    totals, resumed = sums.cumsum(0), Convergence()
    state = convergence(sums[:stop]).state()
    resumed.load(state, totals[stop - 1] if stop else torch.zeros(()))
    for total in totals[stop:]:
        resumed.add(total)
    assert resumed.cosine() == pytest.approx(convergence(sums).cosine(), abs=1e-12)


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
    hook.finalize()


def test_a_resumed_hook_warns_like_one_that_was_not_interrupted(tmp_path):
    torch.save(auto_hook(10).state_dict(), tmp_path / "hook.pt")
    state = torch.load(tmp_path / "hook.pt", weights_only=True)
    assert warning_of(auto_hook(18, state)) == warning_of(auto_hook(18))


def test_states_of_other_ranks_and_versions_start_a_new_estimate():
    hooks = [auto_hook(17), auto_hook(17)]
    for state in (state_for_this_rank([hook.state_dict() for hook in hooks]), old_state(hooks[0])):
        resumed = auto_hook(17, state)
        assert resumed.steps == 17
        assert resumed.convergence is None


def old_state(hook):
    return {key: value for key, value in hook.state_dict().items() if key != "convergence"}
