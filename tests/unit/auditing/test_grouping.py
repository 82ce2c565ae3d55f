"""Rules that say which images contain a pattern."""

import pytest
import torch

from agop.auditing.grouping import Rule, clearest_rule, discriminant, shared_rule
from agop.auditing.two_groups import Groups, separations


def noise(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weak_statistics(seed, count=80, columns=24, difference=1.6):
    """Each statistic differs a little between the two groups. Half of the images are in the upper one."""
    contains = torch.arange(count) % 4 < 2
    return contains, noise(seed, count, columns) + difference * contains[:, None]


def test_a_combination_separates_what_no_statistic_does():
    contains, statistics = weak_statistics(0)
    responses = noise(1, 80) + 2 * contains  # overlapping
    assert max(float(separations(statistics).max()), Groups.of(responses).separation) < 3.6
    rule = clearest_rule(responses, statistics, noise(9, 80, 24))
    assert rule.weights is not None
    contained, groups = rule.split(responses, statistics)
    assert torch.equal(contained, contains)
    assert groups.p < 1e-3


def test_a_faint_pattern_of_one_class_is_found_by_comparing_it_with_other_classes():
    """Each of many statistics differs less than its noise, and the responses say nothing."""
    contains = torch.arange(100) % 5 < 4
    statistics = noise(0, 100, 300) + 0.7 * contains[:, None]
    rule = clearest_rule(noise(1, 100), statistics, noise(2, 200, 300))
    assert (rule.split(noise(1, 100), statistics)[0] == contains).double().mean() in (0, 1)


def test_the_rule_holds_for_other_images():
    contains, statistics = weak_statistics(0)
    rule = clearest_rule(noise(1, 80) + 2 * contains, statistics, noise(9, 80, 24))
    others, their_statistics = weak_statistics(7)
    contained, _ = rule.split(noise(8, 80), their_statistics)
    assert (contained == others).double().mean() > 0.95


def test_images_of_the_lower_group_contain_it_if_the_model_responds_to_them():
    contains, statistics = weak_statistics(0)
    rule = clearest_rule(noise(1, 80) + 3 * contains, -statistics, noise(9, 80, 24))
    assert torch.equal(rule.split(noise(1, 80), -statistics)[0], contains)


def test_on_noise_the_rule_has_no_groups_in_other_images():
    """Many statistics always separate the images that choose the combination, but not others."""
    small = 0
    for seed in range(12):
        rule = clearest_rule(noise(seed, 60), noise(100 + seed, 60, 200), noise(400 + seed, 120, 200))
        _, groups = rule.split(noise(200 + seed, 60), noise(300 + seed, 60, 200))
        small += groups.p < 0.05
    assert small <= 2


def test_responses_decide_if_they_are_clearer():
    contains = torch.arange(60) % 3 == 0
    rule = clearest_rule(noise(0, 60) + 20 * contains, noise(1, 60, 5), noise(2, 60, 5))
    assert rule.weights is None
    assert rule.upper


@pytest.mark.parametrize(("count", "columns"), [(31, 5), (60, 0)])
def test_few_images_or_no_statistics_leave_the_responses(count, columns):
    assert clearest_rule(noise(0, count), noise(1, count, columns), noise(2, count, columns)).weights is None


def test_constant_statistics_do_not_matter():
    contains, statistics = weak_statistics(0)
    constant = torch.full((80, 3), -13.8, dtype=torch.float64)
    statistics = torch.cat([constant, statistics], dim=1)
    rule = clearest_rule(noise(1, 80) + 2 * contains, statistics, noise(9, 80, 27))
    assert torch.equal(rule.split(noise(1, 80), statistics)[0], contains)


def test_discriminant_solves_fishers_equation():
    high = torch.arange(50) < 20
    statistics = noise(0, 50, 4) + torch.tensor([0.0, 1.0, 2.0, 3.0]) * high[:, None]
    means = statistics[high].mean(dim=0), statistics[~high].mean(dim=0)
    centred = torch.cat([statistics[high] - means[0], statistics[~high] - means[1]])
    within = centred.T @ centred / 50
    ridge = within.diagonal().mean() * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close((within + ridge) @ discriminant(statistics, high), means[0] - means[1])


def test_rule_of_responses_ignores_statistics():
    responses = torch.cat([noise(0, 10), noise(1, 10) + 9])
    contains, groups = Rule(None, True).split(responses, noise(2, 20, 3))
    assert torch.equal(contains, torch.arange(20) >= 10)
    assert groups.gap == pytest.approx(9, abs=1.5)
    assert torch.equal(Rule(None, False).split(responses, noise(2, 20, 3))[0], ~contains)


def test_a_class_is_a_group_only_if_nearly_all_of_its_images_differ_clearly_from_others():
    """Ordinary evidence for a class also differs from other classes, but in all degrees."""
    others = noise(0, 120, 40)
    rule = shared_rule(noise(1, 60, 40) + 3, others)
    assert rule is not None
    assert (
        rule.split(noise(2, 120), torch.cat([noise(3, 60, 40) + 3, others[:60]]))[0].tolist()
        == [True] * 60 + [False] * 60
    )
    assert shared_rule(noise(1, 60, 40) + 0.3, others) is None  # overlapping
    assert shared_rule(noise(1, 60, 40), others + 3) is None  # the others have it, the class lacks it
    some = torch.arange(60)[:, None] % 5 > 0
    assert shared_rule(noise(1, 60, 40) + 3 * some, others) is None  # four of five images


def test_p_by_statistics_is_that_of_the_groups_by_the_rule():
    """Tests without groups are known before any pass, unless the rule needs responses."""
    values = torch.rand(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rule = Rule(torch.ones(1, dtype=torch.float64), True)
    assert rule.p_by_statistics(values) == rule.split(torch.zeros(40), values)[1].p > 0.05
    assert Rule(None, True).p_by_statistics(values) == 0
