"""What a model relies on: where its gradients are concentrated, and classes that share evidence."""

import numpy as np
import pytest
import torch
from torch import nn

from agop.auditing.reliance import Reliance, shared_evidence
from agop.evaluation.select import Priors
from agop.prior.agop import AGOP
from tests import shortcuts

NAMES = ("bar", "pole", "square")


def reliance_of(model, images, labels):
    priors = Priors.of(model, images, labels, None, 60, progress=False)
    return Reliance.of(model, priors, NAMES)


@pytest.fixture(scope="module")
def reliance():
    images, labels = shortcuts.drawn(240, 0.7)
    return reliance_of(shortcuts.trained(images, labels), images, labels)


def test_the_class_with_the_patch_is_the_most_concentrated_one(reliance):
    assert next(iter(reliance.concentrations)) == shortcuts.PLANTED
    first = reliance.concentration_sentences[0]
    assert first.startswith("class pole: ")
    assert "at the bottom left" in first
    assert f"Most concentrated is {first}." in reliance.sentences()


def test_filters_are_unit_vectors_of_the_first_convolution(reliance):
    assert reliance.layer == "0"
    assert reliance.filters.vectors.shape[1:] == (1, 3, 3)
    np.testing.assert_allclose(np.square(reliance.filters.vectors).sum(axis=(1, 2, 3)), 1)
    assert reliance.filters.shares.sum() <= 1 + 1e-9


def test_a_model_without_a_convolution_has_no_filters():
    images, labels = shortcuts.drawn(90, 0.7)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 3)).eval()
    assert reliance_of(model, images, labels).filters is None


def test_a_class_with_few_images_is_not_named():
    images, labels = shortcuts.drawn(240, 0.7)
    model = shortcuts.trained(images, labels)
    chosen = torch.cat([(labels != 1).nonzero()[:, 0], (labels == 1).nonzero()[:3, 0]])
    assert set(reliance_of(model, images[chosen], labels[chosen]).concentrations) == {0, 2}


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


def test_classes_that_lack_what_one_other_has_do_not_share_it():
    assert shared_evidence(halves({0: [(2, 2)]})).pairs == ()


def test_two_classes_are_too_few():
    shared = shared_evidence(halves({0: [(2, 2)]}, classes=2))
    assert (shared.pairs, shared.bound) == ((), None)
    assert "unknown" in shared.sentences(["a", "b"])[0]


def test_noise_is_reported_in_few_of_many_data_sets():
    alarms = sum(bool(shared_evidence(halves({}, seed=seed)).pairs) for seed in range(60))
    assert alarms <= 8  # 3 are expected at a level of 5 %


def test_classes_without_evidence_are_not_alike():
    spots = {0: [(2, 2)], 1: [(2, 2)], 2: [(9, 9)]}
    found = [shared_evidence(halves(spots, seed=seed)).pairs for seed in range(30)]
    assert sum((4, 5) in [pair[:2] for pair in pairs] for pairs in found) <= 4
