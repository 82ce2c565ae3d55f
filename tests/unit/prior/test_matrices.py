"""The sketch of M and its error bound, and special cases of eigenvectors. See also tests/unit/plot."""

import itertools

import numpy as np
import pytest
import torch

import agop
from agop.bench import CNN8by8
from agop.prior.accumulator import Sketch
from agop.prior.matrices import Eigenvectors, patch_eigenvectors, sketch_eigenvectors

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


def test_fit_hook_merge_and_states_sketch_the_counted_gradients():
    torch.manual_seed(0)
    model, images = CNN8by8(), torch.randn(60, *SHAPE)
    values = agop.input_gradients(model, images).values.double()
    options = {"only_correct": False, "rank": RANK}
    whole = agop.fit(model, [images[:13], images[13:]], progress=False, **options)
    parts = [agop.fit(model, [part], progress=False, **options) for part in (images[:25], images[25:])]
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


def test_eigenvalues_that_are_rounding_errors_are_omitted():
    random = np.random.default_rng(0)
    root, weight = random.normal(size=(2, 6)), random.normal(size=(6, 1, 3, 3))
    assert len(patch_eigenvectors(root.T @ root, weight, 6).shares) == 2


def test_a_matrix_of_zeros_has_no_eigenvectors():
    zeros = np.zeros((4, 1, 2, 2))
    assert len(patch_eigenvectors(np.zeros((4, 4)), zeros, 5).vectors) == 0
    assert len(sketch_eigenvectors(zeros, 3, zeros[0], 5).shares) == 0


def test_shares_are_printed_in_percent_without_exponents():
    texts = {1: "100 %", 0.997: "100 %", 0.372: "37 %", 0.0521: "5.2 %", 0.00123: "0.12 %", 1e-7: "< 0.01 %"}
    vectors = Eigenvectors(np.zeros((len(texts), 1, 1, 1)), np.array(list(texts)))
    assert vectors.percents == list(texts.values())
