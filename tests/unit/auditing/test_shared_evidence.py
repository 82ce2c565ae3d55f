"""Classes that share their evidence, on made-up diagonals per class."""

import torch

from agop.auditing.shared_evidence import shared_evidence
from agop.statistic.agop import AGOP

SIDE, COUNT = 16, 50


def halves(spots, noise=0.05, classes=6, seed=0):
    """Priors of two halves: noise, and for each class spots (row, column) of 3×3 pixels in both halves."""

    def half(seed):
        random = torch.Generator().manual_seed(seed)
        diagonals = 1 + noise * torch.rand(classes, 1, SIDE, SIDE, generator=random, dtype=torch.float64)
        for index, places in spots.items():
            for row, column in places:
                diagonals[index, 0, row : row + 3, column : column + 3] += 2
        return AGOP(diagonals.mean(dim=0), classes * COUNT, diagonals, torch.full((classes,), COUNT))

    return half(2 * seed), half(2 * seed + 1)


def test_two_classes_with_the_same_spot_share_their_evidence():
    shared = shared_evidence(halves({0: [(2, 2)], 1: [(2, 2)], 2: [(9, 9)], 3: [(9, 2)]}))
    assert [pair[:2] for pair in shared.pairs] == [(0, 1)]
    assert shared.pairs[0][2] > 0.9
    assert "cat and dog share their evidence" in shared.sentences(["cat", "dog", "a", "b", "c", "d"])[0]


def test_noise_is_not_shared():
    shared = shared_evidence(halves({}))
    assert shared.pairs == ()
    assert shared.typical < shared.bound < 0.5
    assert "No two classes share" in shared.sentences(["x"] * 6)[0]


def test_classes_that_lack_what_one_other_has_do_not_share_it():
    assert shared_evidence(halves({0: [(2, 2)]})).pairs == ()


def test_the_most_similar_pair_is_first():
    shared = shared_evidence(halves({0: [(2, 2)], 1: [(2, 2)], 2: [(2, 2), (9, 9)], 3: [(9, 2)]}, classes=12))
    assert shared.pairs[0][:2] == (0, 1)
    assert [pair[2] for pair in shared.pairs] == sorted((pair[2] for pair in shared.pairs), reverse=True)
    assert {pair[:2] for pair in shared.pairs} == {(0, 1), (0, 2), (1, 2)}


def test_two_classes_are_too_few():
    shared = shared_evidence(halves({0: [(2, 2)]}, classes=2))
    assert (shared.pairs, shared.bound) == ((), None)
    assert "unknown" in shared.sentences(["a", "b"])[0]


def test_noise_is_reported_in_few_of_many_data_sets():
    alarms = sum(bool(shared_evidence(halves({}, seed=seed)).pairs) for seed in range(60))
    assert alarms <= 8  # 3 are expected at a level of 5 %


def test_classes_without_evidence_are_not_alike():
    alarms = sum(
        (4, 5)
        in [pair[:2] for pair in shared_evidence(halves({0: [(2, 2)], 1: [(2, 2)], 2: [(9, 9)]}, seed=seed)).pairs]
        for seed in range(30)
    )
    assert alarms <= 4
