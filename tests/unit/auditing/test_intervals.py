"""Student's test and Holm's correction against tables."""

import math

import pytest
import torch

from agop.auditing.intervals import Mean, holm, quantile, tail


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (4, 2.776), (15, 2.131), (99, 1.984)])
def test_quantiles_of_a_table(freedom, t):
    assert quantile(0.025, freedom) == pytest.approx(t, abs=1e-3)
    assert tail(t, freedom) == pytest.approx(0.025, abs=1e-4)
    assert tail(-t, freedom) == pytest.approx(0.975, abs=1e-4)


def test_tail_far_out_is_small_but_positive():
    assert 0 < tail(20.0, 50) < 1e-20


def test_holm_multiplies_by_what_remains_and_never_decreases():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_mean_is_over_groups():
    mean = Mean.over_groups(torch.tensor([0.0, 0.2, 0.4, 0.4, 0.4]), torch.tensor([7, 7, 3, 3, 3]))
    assert (mean.value, mean.groups) == (pytest.approx(0.25), 2)
    assert mean.error == pytest.approx(0.15)


def test_mean_without_variance():
    constant = Mean.over_groups(torch.full((4,), 0.5), torch.arange(4))
    assert constant.p_above(0.1) == 0
    assert constant.p_above(0.5) == 1
    single = Mean.over_groups(torch.tensor([0.5]), torch.tensor([0]))
    assert single.p_above(0.1) == 1
    assert single.interval == (-math.inf, math.inf)


def test_difference_of_means_is_welchs():
    first, second = Mean(3.0, 0.3, 10), Mean(1.0, 0.4, 5)
    difference = first.minus(second)
    freedom = (0.09 + 0.16) ** 2 / (0.09**2 / 9 + 0.16**2 / 4)  # 8.57
    assert (difference.value, difference.error) == (2.0, pytest.approx(0.5))
    assert difference.groups == int(freedom) + 1
    assert first.minus(Mean(1.0, math.inf, 1)).p_above(0.0) == 1
    assert Mean(1.0, 0.0, 4).minus(Mean(0.0, 0.0, 9)).p_above(0.05) == 0
