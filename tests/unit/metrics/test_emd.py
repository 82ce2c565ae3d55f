"""The earth mover's distance: known distances, pooling, and a missing library."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from agop import metrics
from agop.errors import MissingExtraError


def one_pixel(row, column, side=8):
    maps = torch.zeros(1, side, side)
    maps[0, row, column] = 3.0
    return maps


@pytest.mark.parametrize(("place", "distance"), [((0, 0), 0), ((0, 3), 3), ((3, 4), 5), ((7, 7), 7 * math.sqrt(2))])
def test_a_single_pixel_is_moved_by_its_distance(place, distance):
    score = metrics.emd(one_pixel(*place), one_pixel(0, 0) > 0)
    assert score.tolist() == [pytest.approx(1 - distance / (7 * math.sqrt(2)))]


def test_the_cost_is_that_of_the_best_transport_plan():
    """Against a linear program over all transport plans of a 4×4 map."""
    random = np.random.default_rng(0)
    heat, mask = random.random((4, 4)), np.zeros((4, 4), bool)
    mask[0, :2] = mask[2, 3] = True
    places = np.stack(np.indices((4, 4)), -1).reshape(-1, 2)
    costs = np.linalg.norm(places[:, None] - places[None], axis=-1)
    source, goal = heat.ravel() / heat.sum(), mask.ravel() / mask.sum()
    rows, columns = np.kron(np.eye(16), np.ones((1, 16))), np.kron(np.ones((1, 16)), np.eye(16))
    plan = linprog(costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([source, goal]))
    score = metrics.emd(torch.tensor(heat)[None], torch.tensor(mask)[None])
    assert float(score) == pytest.approx(1 - plan.fun / costs.max(), abs=1e-7)


def test_large_maps_are_pooled_to_16_by_16():
    maps, masks = one_pixel(0, 0, 64), one_pixel(0, 63, 64) > 0
    assert metrics.emd(maps, masks).tolist() == [pytest.approx(1 - 15 / (15 * math.sqrt(2)))]
    assert metrics.emd(one_pixel(2, 3, 64), one_pixel(0, 0, 64) > 0).tolist() == [1.0]  # in the same pooled pixel


def test_undefined_scores_are_nan():
    maps = torch.cat([torch.zeros(1, 8, 8), one_pixel(0, 0)])
    scores = metrics.emd(maps, torch.stack([one_pixel(0, 0)[0] > 0, torch.zeros(8, 8, dtype=torch.bool)]))
    assert scores.isnan().all()


def test_without_pot_the_error_names_the_install_command_and_other_metrics_are_the_default(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'agop\[emd\]'"):
        metrics.emd(one_pixel(0, 0), one_pixel(0, 0) > 0)
    assert "emd" not in metrics.default_names()
    assert "iou" in metrics.default_names()
