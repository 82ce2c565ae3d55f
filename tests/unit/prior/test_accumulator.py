import pytest
import torch

from agop.errors import InputError
from agop.prior.accumulator import Accumulator

SHAPE = (3, 5, 4)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("shape", [(10, *SHAPE), (300, 3, 40, 40)])
def test_diagonal_is_the_mean_of_squared_gradients_also_in_chunks(shape, per_class):
    gradients, classes = torch.randn(shape), torch.arange(shape[0]) % 2 * 2
    sums = Accumulator(per_class)
    sums.update(gradients[:3], classes[:3], 3)
    sums.update(gradients[3:], classes[3:], 3)
    assert sums.count == len(gradients)
    assert sums.diagonal().dtype == torch.float64
    torch.testing.assert_close(sums.diagonal(), gradients.double().square().mean(0))
    diagonals = sums.parts()["class_diagonals"]
    if not per_class:
        assert diagonals is None
        return
    assert diagonals[1].isnan().all()
    assert sums.counts.tolist() == classes.bincount(minlength=3).tolist()
    for label in (0, 2):
        torch.testing.assert_close(diagonals[label], gradients[classes == label].double().square().mean(0))


def test_small_squares_are_not_lost_next_to_large_ones():
    sums = Accumulator()
    sums.update(torch.full((1, 1, 1, 1), 1e4), torch.zeros(1).long(), 2)
    for _ in range(100):
        sums.update(torch.full((1, 1, 1, 1), 1.0), torch.zeros(1).long(), 2)
    assert float(sums.diagonal() * sums.count) == 1e8 + 100


def test_another_number_of_classes_raises():
    sums = Accumulator()
    sums.update(torch.zeros(1, *SHAPE), torch.zeros(1).long(), 3)
    with pytest.raises(InputError, match="4 classes"):
        sums.update(torch.zeros(1, *SHAPE), torch.zeros(1).long(), 4)


@pytest.mark.parametrize("per_class", [False, True])
def test_an_empty_accumulator_is_the_identity_of_merge(per_class):
    sums, empty = Accumulator(per_class), Accumulator(per_class)
    sums.update(torch.randn(7, *SHAPE), torch.arange(7) % 3, 3)
    before, counts = sums.sums.clone(), sums.counts.clone()
    for merged in (sums.merge(empty), empty.merge(sums)):
        assert torch.equal(merged.sums, before)
        assert torch.equal(merged.counts, counts)
