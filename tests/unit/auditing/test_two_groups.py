"""Two groups of values: Otsu's split by a loop is the slow twin."""

import math

import pytest
import torch

from agop.auditing.two_groups import Groups, separations


def sample(seed, *clusters):
    """Normal values in random order: (count, mean) per cluster, with standard deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.cat(
        [mean + torch.randn(count, generator=generator, dtype=torch.float64) for count, mean in clusters]
    )
    return values[torch.randperm(len(values), generator=generator)]


def otsu(values):
    """The upper group, Ashman's D and the difference of the means, from every split with enough values on each side."""
    ordered = values.sort().values
    fewest = max(4, math.ceil(0.08 * len(values)))

    def between(size):
        low, high = ordered[:size], ordered[size:]
        return len(low) * len(high) * float(high.mean() - low.mean()) ** 2

    size = max(range(fewest, len(values) - fewest + 1), key=between)
    low, high = ordered[:size], ordered[size:]
    gap = float(high.mean() - low.mean())
    spread = math.sqrt(float(low.var(correction=0) + high.var(correction=0)) / 2)
    return values >= high[0], gap / spread, gap


@pytest.mark.parametrize("clusters", [[(40, 0)], [(30, 0), (10, 8)], [(60, 0), (5, 9)], [(8, 0)]])
@pytest.mark.parametrize("offset", [0, 1e8])
def test_groups_are_those_of_otsu(clusters, offset):
    """A large mean doesn't change them."""
    values = sample(0, *clusters) + offset
    groups = Groups.of(values)
    high, separation, gap = otsu(values)
    assert torch.equal(groups.high, high)
    assert groups.separation == pytest.approx(separation, rel=1e-6)
    assert groups.gap == pytest.approx(gap)


def test_separations_are_those_of_each_column():
    columns = torch.stack([sample(seed, (20, 0), (20, seed)) for seed in range(6)], dim=1)
    expected = [Groups.of(column).separation for column in columns.T]
    torch.testing.assert_close(separations(columns), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("count", [10, 40, 100])
def test_normal_and_uniform_values_rarely_form_groups_and_two_clusters_do(count):
    generator = torch.Generator().manual_seed(1)
    uniform = [Groups.of(torch.rand(count, generator=generator)).p for _ in range(200)]
    normal = [Groups.of(sample(seed, (count, 0))).p for seed in range(200)]
    assert sum(p < 0.05 for p in uniform) <= 24  # 5 % of 200, plus four standard errors
    assert sum(p < 0.05 for p in normal) <= 24
    clusters = [Groups.of(sample(seed, (count - count // 2, 0), (count // 2, 12))).p for seed in range(20)]
    assert max(clusters) < (1e-3 if count > 10 else 1e-2)  # ten uniform values have D 11 or more in one case of 1000


def test_p_falls_with_the_separation():
    high = torch.arange(40) < 20
    ps = [Groups(high, separation, 1.0, 0.0).p for separation in (2.0, 3.0, 4.0, 5.0, 8.0)]
    assert ps == sorted(ps, reverse=True)
    assert len(set(ps)) == 5
    assert all(0 <= p <= 1 for p in ps)


def test_the_smaller_group_has_at_least_eight_percent():
    """Three outliers of 100 values aren't a group."""
    groups = Groups.of(sample(0, (97, 0), (3, 50)))
    assert 8 <= int(groups.high.sum()) <= 92


def test_equal_values_have_no_groups():
    groups = Groups.of(torch.full((20,), 3.0))
    assert (groups.separation, groups.gap) == (0, 0)
    assert groups.p > 0.99


@pytest.mark.parametrize("count", [10, 40, 100])
def test_small_p_values_of_uniform_values_are_as_rare_as_they_say(count):
    """The separation of uniform values has a long upper tail."""
    values = torch.rand(count, 20_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    high = torch.zeros(count, dtype=torch.bool)
    ps = [Groups(high, separation, 1.0, 0.0).p for separation in separations(values).topk(400).values.tolist()]
    assert sum(p <= 0.01 for p in ps) <= 300
    assert 5 <= sum(p <= 0.001 for p in ps) <= 40


@pytest.mark.parametrize(("count", "separation"), [(10, 20.0), (40, 10.0)])
def test_clear_groups_survive_a_correction_for_100_tests(count, separation):
    assert 100 * Groups(torch.zeros(count, dtype=torch.bool), separation, 1.0, 0.0).p < 0.05
