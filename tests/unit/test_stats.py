"""Means with intervals, Student's test, corrections and rank statistics."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import agop
from agop.report.run import best_methods
from agop.stats import Estimate, Mean, Ratio, at_chance, auroc, estimate, holm, quantile, spearman, tail, wilson


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


@pytest.mark.parametrize("freedom", [1, 2, 9, 499])
@pytest.mark.parametrize("probability", [0.025, 0.025 / 8, 1e-4])
def test_students_quantile_and_tail_equal_scipys(freedom, probability):
    t = stats.t.isf(probability, freedom)
    assert quantile(probability, freedom) == pytest.approx(t, rel=1e-9)
    assert tail(t, freedom) == pytest.approx(probability, rel=1e-9)
    assert tail(-t, freedom) == pytest.approx(1 - probability)


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


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [10, 20, 15], 0.5),
        ([1, 2, 3], [3, 2, 1], -1),
        ([1, 1, 2], [5, 6, 7], 3**0.5 / 2),
        ([1, 1], [1, 2], math.nan),
    ],
)
def test_spearman(a, b, expected):
    assert spearman(a, b) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("count", "share"), [(10, 0.95), (10, 0.5), (30, 0.98), (100, 0.99)])
def test_intervals_of_samples_that_are_hits_or_misses_cover_the_true_share(count, share):
    """A bootstrap of ten hits has no width: for ten samples and a share of 0.95 it covers 39 % instead of 95 %."""
    hits = np.arange(count + 1)
    ends = [estimate([1.0] * hit + [0.0] * (count - hit), (0, 1)).interval for hit in hits]
    covered = [low <= share <= high for low, high in ends]
    assert stats.binom.pmf(hits, count, share)[covered].sum() >= 0.9
    assert ends[-1] == wilson(count, count)


def test_hits_and_misses_of_other_bounds_and_equal_seeds_keep_their_interval():
    """A difference of scores isn't a share, and a seed whose mean is 1 isn't one hit."""
    assert estimate([1.0, 1.0, 1.0]).interval == Estimate((1.0, 1.0, 1.0), (0, 1)).interval == (1, 1)


@pytest.mark.parametrize("images", [2, 3, 6, 10])
def test_hits_of_equal_methods_rarely_name_a_winner(images):
    """Two images without variance are no proof: one method hits both and the other none in 12.5 % of the cases."""
    drawn = np.random.default_rng(0).integers(0, 2, (1000, images, 2)).astype(float)
    assert np.mean([len(best(values, estimate)) == 1 for values in drawn]) <= 0.05
    assert best([[1.0, 0.0]] * 6, estimate) == ["0"]


@pytest.mark.parametrize(("found", "count"), [(0, 7), (3, 7), (7, 7)])
def test_wilsons_interval_solves_its_equation(found, count):
    """The ends are the shares p with |found/count − p| = z √(p(1 − p)/count)."""
    for end in wilson(found, count):
        assert abs(found / count - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / count), abs=1e-6)


def test_auroc_counts_pairs_and_half_of_the_ties():
    assert auroc(np.array([1.0, 2.0]), np.array([1.0, 0.0])) == 3.5 / 4


def best(values, mean=lambda column: Estimate(tuple(column)), up=True):
    """Names of the methods (columns) that may be the best, from scores (seeds or samples, methods)."""
    columns = {str(index): column for index, column in enumerate(np.asarray(values).T)}
    scores = {name: mean(column) for name, column in columns.items()}
    sign = 1 if up else -1
    return best_methods(scores, lambda a, b: mean(sign * (columns[a] - columns[b])), up=up)


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


@pytest.mark.parametrize(
    ("correct", "count", "majority", "expected"),
    [
        (59_000, 100_000, 50_000, False),
        (90, 1000, 1, False),
        (50_100, 100_000, 50_000, True),
        (900, 1000, 900, True),  # always the largest class
        (60, 100, 50, False),
        (16, 30, 15, True),
        (5, 10, 5, False),  # too few to tell
        (80, 100, 100, False),  # all images are of one class
    ],
)
def test_chance_knows_the_number_of_images_and_the_largest_class(correct, count, majority, expected):
    assert at_chance(correct, count, majority, 2 if majority > 1 else 1000) is expected


@pytest.mark.parametrize(("missed", "expected"), [(5, False), (20, True)])
def test_fit_explain_and_audit_share_one_rule_for_chance(missed, expected):
    """Of 200 images 180 are in the first class. A network that tells bright from dark misses some of the others."""
    labels = (torch.arange(200) >= 180).long()
    images = 0.1 * torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[180 + missed :] += 1
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    model[1].weight.data = torch.stack([torch.zeros(64), torch.full((64,), 1 / 64)])
    model[1].bias.data = torch.tensor([0.6, 0.0])
    prior = agop.fit(model, [(images, labels)], progress=False)
    assert prior.provenance.at_chance is expected
    assert agop.audit(model, images, labels, progress=False).at_chance is expected
