import itertools

import pytest
import torch

import agop
from agop.errors import InputError
from agop.networks import CNN8by8
from agop.statistic.sketch import Sketch

RANK, SHAPE = 6, (1, 8, 8)


def gradients(samples=90, seed=0):
    """Gradients (N,1,8,8), float64, whose singular values fall quickly."""
    random = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(64, 64, generator=random).double())[0]
    scales = 0.8 ** torch.arange(64).double()
    return ((torch.randn(samples, 64, generator=random).double() * scales) @ directions).reshape(-1, *SHAPE)


def sketched(values, *splits):
    """A sketch updated in parts."""
    sketch = Sketch(RANK)
    for part in torch.tensor_split(values, splits):
        sketch.update(part)
    return sketch


def check_bound(rows, values):
    """AᵀA − BᵀB is positive semi-definite, and at most ‖A − A_k‖² / (ℓ − k) for all k < ℓ."""
    exact, approximate = values.flatten(1), rows.double().flatten(1)
    errors = torch.linalg.eigvalsh(exact.T @ exact - approximate.T @ approximate)
    squares = torch.linalg.svdvals(exact).square()
    rounding = 1e-6 * float(squares[0])
    assert errors.min() >= -rounding
    assert errors.max() > rounding, "the test needs gradients that don't fit into the sketch"
    for k in range(RANK):
        assert errors.max() <= squares[k:].sum() / (RANK - k) + rounding


@pytest.mark.parametrize("splits", [(), (1, 2, 3, 50), (12, 24), (40,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_error_bound_holds_however_the_gradients_arrive(splits, dtype):
    values = gradients()
    rows = sketched(values.to(dtype), *splits).rows()
    assert rows.shape == (RANK, *SHAPE)
    assert rows.dtype == dtype
    check_bound(rows, values)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_merged_sketches_keep_the_bound_in_any_order(order):
    values = gradients()
    parts = [sketched(part) for part in torch.tensor_split(values, (20, 27))]
    a, b, c = (parts[index] for index in order)
    check_bound(a.merge(b).merge(c).rows(), values)
    check_bound(a.merge(b.merge(c)).merge(Sketch(RANK)).rows(), values)


def test_few_gradients_are_kept_exactly_and_reading_does_not_change_the_sketch():
    values = gradients(RANK - 2)
    rows = sketched(values).rows()
    assert torch.equal(rows[: RANK - 2], values)
    assert not rows[RANK - 2 :].any()
    sketch, undisturbed = sketched(gradients(20)), sketched(gradients(20))
    sketch.rows()
    for each in (sketch, undisturbed):
        each.update(gradients(30, seed=1))
    assert torch.equal(sketch.rows(), undisturbed.rows())


def test_gradients_of_lower_rank_are_exact_and_zeros_stay_zeros():
    values = gradients()[:3].repeat(20, 1, 1, 1)
    rows, exact = sketched(values).rows().flatten(1), values.flatten(1)
    torch.testing.assert_close(rows.T @ rows, exact.T @ exact)
    assert not sketched(torch.zeros(50, *SHAPE)).rows().any()


def test_state_restores_the_sketch():
    sketch, restored = sketched(gradients(20)), Sketch(RANK)
    restored.load_state_dict(sketch.state_dict())
    for each in (sketch, restored):
        each.update(gradients(30, seed=1))
    assert torch.equal(sketch.rows(), restored.rows())


@pytest.mark.parametrize("rank", [-1, 1.5, True, "64"])
def test_rank_must_be_a_positive_integer(rank):
    with pytest.raises(InputError, match="rank is"):
        agop.fit(CNN8by8(), [torch.randn(3, *SHAPE)], False, progress=False, rank=rank)
    with pytest.raises(InputError, match="0 for no sketch"):
        Sketch(0)
    with pytest.raises(InputError, match="rank 3 and 4"):
        Sketch(3).merge(Sketch(4))


def test_fit_hook_merge_and_states_sketch_the_counted_gradients():
    torch.manual_seed(0)
    model, images = CNN8by8(), torch.randn(60, *SHAPE)
    values = agop.input_gradients(model, images).values.double()
    options = {"only_correct": False, "rank": RANK}
    whole = agop.fit(model, [images[:13], images[13:]], progress=False, **options)
    parts = [agop.fit(model, [part], progress=False, **options) for part in (images[:25], images[25:])]
    with pytest.warns(agop.AGOPWarning, match="share samples"):
        merged = agop.merge(parts)
    hook = agop.AGOPTrainingHook(model, **options)
    hook.step(images[:25])
    resumed = agop.AGOPTrainingHook(model, **options)
    resumed.load_state_dict(hook.state_dict())
    resumed.step(images[25:])
    dense = values.flatten(1).T @ values.flatten(1) / 60
    for prior in (whole, merged, resumed.finalize()):
        check_bound(prior.sketch, values)
        rows = prior.sketch.double().flatten(1)
        estimate = rows.T @ rows / prior.count + torch.diag(prior.residual.flatten())
        torch.testing.assert_close(estimate.diagonal(), dense.diagonal(), rtol=1e-5, atol=1e-12)
        assert (prior.residual >= 0).all()
        assert prior.residual_share == pytest.approx(1 - float(rows.square().sum() / 60 / dense.trace()), abs=1e-6)
        assert 0 < prior.residual_share < 1
