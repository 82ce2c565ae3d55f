"""Which methods may be the best, after correction for the number of methods compared."""

import numpy as np
import pytest
from scipy import stats

from agop.report.estimate import Estimate, student
from agop.report.winners import best_methods


def best(values, up=True):
    """Names of the methods (columns) that may be the best, from scores (seeds, methods)."""
    columns = {str(index): column for index, column in enumerate(np.asarray(values).T)}
    scores = {name: Estimate(tuple(column)) for name, column in columns.items()}
    sign = 1 if up else -1
    return best_methods(scores, lambda a, b: Estimate(tuple(sign * (columns[a] - columns[b]))), up=up)


def simulated(runs, seeds, offsets):
    """Scores of `runs` runs (seeds, methods): a part that all methods of a seed share, and noise of their own."""
    random = np.random.default_rng(0)
    for _ in range(runs):
        yield random.normal(0, 1, (seeds, 1)) + random.normal(0, 1, (seeds, len(offsets))) + np.array(offsets)


@pytest.mark.parametrize("seeds", [3, 6, 10])
@pytest.mark.parametrize("methods", [3, 8])
def test_runs_without_any_difference_rarely_name_a_winner_or_a_loser(seeds, methods):
    results = [best(values) for values in simulated(1000, seeds, [0.0] * methods)]
    assert np.mean([len(tied) == 1 for tied in results]) <= 0.05
    assert np.mean(["0" not in tied for tied in results]) <= 0.05


def test_two_equal_methods_above_the_others_rarely_give_a_winner():
    rate = np.mean([len(best(values)) == 1 for values in simulated(2000, 6, [9.0, 9.0, 0.0, 0.0])])
    assert rate <= 0.05


def test_a_clear_lead_is_a_win_and_lower_can_be_better():
    values = next(simulated(1, 10, [5.0, 0.0, 0.0, 0.5]))
    assert best(values) == ["0"]
    assert best(-values, up=False) == ["0"]
    assert "0" not in best(values, up=False)


def test_equal_scores_are_all_best_and_the_best_mean_comes_first():
    assert set(best([[1.0, 1.0], [2.0, 2.0]])) == {"0", "1"}
    assert best([[0.1, 0.3, 0.2], [0.3, 0.1, 0.3]])[0] == "2"
    assert best_methods({}, lambda a, b: None, up=True) == []


@pytest.mark.parametrize("freedom", [1, 2, 9, 499])
@pytest.mark.parametrize("tail", [0.025, 0.025 / 8, 1e-4])
def test_student_equals_scipy(freedom, tail):
    assert student(freedom, tail) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-3)
