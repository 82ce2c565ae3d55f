"""Means with 95 % intervals."""

import numpy as np
import pytest

from agop.report.estimate import Estimate, Ratio, student


def test_interval_of_few_values():
    assert Estimate((0.5,)).interval is None
    low, high = Estimate((0.1, 0.2, 0.3)).interval
    assert low < 0.1 < 0.3 < high
    assert Estimate((0.1, 0.2, 0.3), (0, 0.35)).interval == (0, 0.35)
    assert Estimate((0.2,) * 5).interval == pytest.approx((0.2, 0.2))
    assert Estimate((0.1, 0.2, 0.3)).interval == Estimate((0.1, 0.2, 0.3)).interval


@pytest.mark.parametrize("count", [2, 3, 4, 6, 10, 30, 2500])
def test_95_percent_of_intervals_cover_the_true_mean(count):
    random = np.random.default_rng(count)
    ends = [Estimate(tuple(random.normal(0, 1, count))).interval for _ in range(1500 if count < 100 else 500)]
    assert np.mean([low <= 0 <= high for low, high in ends]) == pytest.approx(0.945, abs=0.02)


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 50])
def test_student_quantile_equals_scipys(freedom):
    stats = pytest.importorskip("scipy.stats")
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-5)


def test_normal_interval_of_many_values_equals_the_bootstrap():
    """Above 2000 values nothing is resampled, which would take gigabytes."""
    values = np.random.default_rng(0).gamma(2.0, size=2001)
    bootstrap, normal = Estimate(tuple(values[:2000])), Estimate(tuple(values))
    assert normal.interval == pytest.approx(bootstrap.interval, abs=0.005)


def test_ratio_is_of_the_means_and_its_interval_covers_the_true_one():
    assert Ratio((1.0, 3.0), (1.0, 1.0)).mean == 2
    assert Ratio((0.9,), (1.0,)).interval is None
    assert Ratio((0.5, 1.0, 1.5), (1.0, 2.0, 3.0)).interval == pytest.approx((0.5, 0.5))
    random = np.random.default_rng(0)
    pairs = (random.normal(((0.9,), (1.0,)), 0.1, (2, 10)) for _ in range(1000))
    ends = [Ratio(*map(tuple, pair)).interval for pair in pairs]
    assert np.mean([low <= 0.9 <= high for low, high in ends]) == pytest.approx(0.945, abs=0.025)
