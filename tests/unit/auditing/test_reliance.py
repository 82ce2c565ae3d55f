"""Reliance of a model that was trained on drawn images with a patch in a corner of one class."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from agop.auditing.page.reliance_view import reliance_view
from agop.auditing.pool import Half
from agop.auditing.priors import Priors
from agop.auditing.reliance import Reliance
from tests import shortcuts

NAMES = ("bar", "pole", "square")


def reliance_of(model, images, labels):
    half = Half(images, labels, tuple(map(str, range(len(labels)))))
    return Reliance.of(model, half, Priors.of(model, half, None, 60, progress=False), NAMES, 60, seed=0)


@pytest.fixture(scope="module")
def reliance():
    images, labels = shortcuts.drawn(240, 0.7)
    return reliance_of(shortcuts.trained(images, labels), images, labels)


def test_the_class_with_the_patch_is_the_most_concentrated_one(reliance):
    first = next(iter(reliance.concentrations))
    assert first == shortcuts.PLANTED
    assert reliance.concentration_sentence(first).startswith("class pole: ")
    assert "at the lower left" in reliance.concentration_sentence(first)
    assert f"Most concentrated is {reliance.concentration_sentence(first)}." in reliance.sentences()


def test_bars_at_random_places_are_patterns_that_move(reliance):
    assert "looks at patterns that move" in reliance.sentences()[0]


def test_filters_are_unit_vectors_of_the_first_convolution(reliance):
    assert reliance.layer == "0"
    assert reliance.filters.vectors.shape[1:] == (1, 3, 3)
    np.testing.assert_allclose(np.square(reliance.filters.vectors).sum(axis=(1, 2, 3)), 1)
    assert reliance.filters.shares.sum() <= 1 + 1e-9


def test_figures_are_json_values(reliance):
    saved = json.loads(json.dumps(reliance.to_dict(), allow_nan=False))
    assert [entry["class_index"] for entry in saved["concentration"]] == list(reliance.concentrations)
    assert saved["positional_consistency"]["corrected"] == pytest.approx(reliance.consistency.corrected)
    assert len(saved["filters"]) == len(reliance.filters.shares)


def test_a_model_without_a_convolution_has_no_filters():
    images, labels = shortcuts.drawn(90, 0.7)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 3)).eval()
    reliance = reliance_of(model, images, labels)
    assert reliance.filters is None
    view = reliance_view(reliance)
    assert view.filters == []
    assert len(view.classes) == len(reliance.concentrations)


def test_a_class_with_few_images_is_not_named():
    images, labels = shortcuts.drawn(240, 0.7)
    model = shortcuts.trained(images, labels)
    chosen = torch.cat([(labels != 1).nonzero()[:, 0], (labels == 1).nonzero()[:3, 0]])
    assert set(reliance_of(model, images[chosen], labels[chosen]).concentrations) == {0, 2}
