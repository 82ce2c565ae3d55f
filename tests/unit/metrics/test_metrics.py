"""Metrics: known scores, ties, undefined scores, and errors."""

import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from agop import metrics
from agop.errors import AGOPWarning, InputError, MissingExtraError, UnknownNameError
from tests import zoo

LOCALISATION = ["pointing_game", "iou", "energy", "average_precision", "rank_accuracy", "emd"]


def test_uniform_random_maps_score_as_in_the_paper():
    random = torch.Generator().manual_seed(0)
    maps, masks = torch.rand(20_000, 8, 8, generator=random), torch.zeros(20_000, 8, 8, dtype=torch.bool)
    masks[:, 1:4, 1] = masks[:, 2, 2] = True
    for name, expected in (("pointing_game", 0.0625), ("iou", 0.059), ("energy", 0.0625), ("rank_accuracy", 0.0625)):
        scores = metrics.get(name)(maps, masks)
        assert float(scores.mean()) == pytest.approx(expected, abs=4 * float(scores.std()) / 20_000**0.5)


def test_scores_computed_by_hand():
    maps = torch.tensor([[[4.0, 2.0], [1.0, 1.0]]])
    masks = torch.tensor([[[1, 0], [1, 0]]])
    assert metrics.pointing_game(maps, masks).tolist() == [1.0]
    assert metrics.energy(maps, masks).tolist() == [5 / 8]
    assert metrics.iou(maps, masks).tolist() == [1 / 2]  # only the 4 is at or above 2.5
    assert metrics.iou(maps, masks, cut=1 / 3).tolist() == [1 / 3]
    assert metrics.rank_accuracy(maps, masks).tolist() == [1 / 2]
    assert metrics.average_precision(maps, masks).tolist() == [pytest.approx((1 + 2 / 4) / 2)]
    constant, masks = torch.ones(1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    for metric in (metrics.pointing_game, metrics.rank_accuracy, metrics.average_precision):
        assert metric(constant, masks).tolist() == [0.25]
    assert metrics.iou(constant, masks).isnan().all()


@pytest.mark.parametrize("name", LOCALISATION)
def test_undefined_scores_are_nan_and_do_not_affect_the_others(name):
    maps, masks = torch.rand(5, 4, 4) + 0.1, torch.zeros(5, 4, 4, dtype=torch.bool)
    masks[:, 0, 0] = True
    expected = metrics.get(name)(maps, masks)
    maps[1], maps[2, 0, 0], masks[3] = 0, torch.nan, False
    scores = metrics.get(name)(maps, masks)
    assert scores.isnan().tolist() == [False, True, True, True, False]
    assert torch.equal(scores[[0, 4]], expected[[0, 4]])


@pytest.mark.parametrize("name", LOCALISATION)
def test_masks_of_every_dtype_are_equal_and_signed_masks_have_three_values(name):
    maps, masks, metric = torch.rand(3, 4, 4), torch.rand(3, 4, 4) < 0.4, metrics.get(name)
    masks[:, 0, 0] = True
    for other in (masks.int(), masks.double(), masks.numpy()):
        assert torch.equal(metric(maps, masks), metric(maps, other))
    with pytest.raises(InputError, match="other than -1, 0, 1"):
        metric(maps, masks.int() * 2, signed=True)


def test_signed_masks_count_negatively():
    maps, masks = torch.ones(1, 2, 2), torch.tensor([[[1, -1], [0, 0]]])
    maps[0, 0, 0] = 2
    assert metrics.energy(maps, masks, signed=True).tolist() == [pytest.approx(1 / 5)]
    assert metrics.pointing_game(maps, masks, signed=True).tolist() == [1.0]
    assert metrics.iou(2 - maps, masks, signed=True).tolist() == [pytest.approx(-1 / 4)]


@pytest.mark.parametrize("name", LOCALISATION)
@pytest.mark.parametrize(
    ("maps", "masks", "message"),
    [
        (torch.rand(2, 4, 4), torch.ones(2, 5, 5), r"masks have shape \(2, 5, 5\), maps \(2, 4, 4\)"),
        (torch.rand(4, 4), torch.ones(4, 4), r"maps have shape \(4, 4\)"),
        ({"vanilla": torch.rand(1, 2, 2)}, torch.ones(1, 2, 2), "maps is a dict, masks a Tensor: give tensors"),
        (torch.rand(2, 4, 4), -torch.ones(2, 4, 4), r"other than 0, 1.*signed=True"),
    ],
)
def test_invalid_maps_and_masks_raise(name, maps, masks, message):
    with pytest.raises(InputError, match=message):
        metrics.get(name)(maps, masks)


def test_unknown_metrics_and_invalid_arguments_of_deletion_and_insertion_raise():
    model, images = zoo.build("plain"), zoo.images(3)
    with pytest.raises(InputError, match=r"maps have shape \(3, 5, 5\)"):
        metrics.deletion(model, images, torch.rand(3, 5, 5))
    for steps in (0, 145):
        with pytest.raises(InputError, match="give 1 to 144"):
            metrics.insertion(model, images, torch.rand(3, 12, 12), steps=steps)
    with pytest.raises(InputError, match="target 7"):
        metrics.insertion(model, images, torch.rand(3, 12, 12), target=7)
    with pytest.raises(UnknownNameError, match="did you mean 'insertion'"):
        metrics.get("insertio")


@pytest.mark.parametrize("name", ["deletion", "insertion", "srg"])
def test_scores_of_the_model_are_nan_for_a_zero_map_only(name):
    maps = torch.rand(3, 12, 12)
    maps[1] = 0
    assert metrics.get(name)(zoo.build("one logit"), zoo.images(3), maps).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_batch_size_bounds_the_passes_and_does_not_change_the_scores(batch_size):
    model, rows, maps = zoo.build("plain"), [], torch.rand(5, 12, 12)
    expected = metrics.insertion(model, zoo.images(), maps)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    scores = metrics.insertion(model, zoo.images(), maps, batch_size=batch_size)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    assert max(rows) <= batch_size


def test_description_has_the_values_of_the_options():
    assert not [name for name in metrics.names() if "`" in metrics.get(name).described()["what"]]
    assert "at or above 0.5 of the map's range" in metrics.get("iou").described()["what"]
    assert "set to 0 in at most 64 steps." in metrics.get("deletion").described()["what"]
    assert "restored from 0 in 16 steps." in metrics.get("insertion").described(16)["what"]


def one_pixel(row, column, side=8):
    maps = torch.zeros(1, side, side)
    maps[0, row, column] = 3.0
    return maps


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


def test_without_pot_the_error_names_the_install_command_and_other_metrics_are_the_default(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'agop\[emd\]'"):
        metrics.emd(one_pixel(0, 0), one_pixel(0, 0) > 0)
    assert "emd" not in metrics.default_names()
    assert "iou" in metrics.default_names()


@pytest.fixture(scope="module")
def batch():
    return zoo.build("plain"), zoo.images(), torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(0))


def test_with_a_constant_reference_it_is_insertion_minus_deletion_with_that_fill(batch):
    references = torch.full((4, *batch[1].shape[1:]), 0.3)
    inserted, deleted = (metric(*batch, steps=8, fill=0.3) for metric in (metrics.insertion, metrics.deletion))
    torch.testing.assert_close(metrics.srg(*batch, references=references), inserted - deleted)
    assert torch.equal(metrics.srg(*batch, fill=0.3), inserted - deleted)


def test_the_fill_is_the_references_pixel_at_the_same_place(batch):
    """A reference that equals the image changes nothing: deletion and insertion are both constant."""
    model, images, maps = batch
    scores = metrics.srg(model, images[:1], maps[:1], references=images[:1])
    torch.testing.assert_close(scores, torch.zeros(1, dtype=torch.float64), atol=1e-6, rtol=0)


def test_draws_depend_on_the_seed_alone(batch):
    for options in ({}, {"references": zoo.images(50)}):
        first, again, other = (metrics.srg(*batch, seed=seed, **options) for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.parametrize("shape", [(0, 3, 12, 12), (4, 3, 8, 8), (4, 1, 12, 12)])
def test_unsuitable_references_raise(batch, shape):
    with pytest.raises(InputError, match="references have shape"):
        metrics.srg(*batch, references=torch.zeros(shape))


def test_emd_of_an_image_that_is_not_square_is_the_distance_in_pixels():
    """Mass at one end of 16×16 pooled pixels, the mask at the other: across a wide image far, down it near."""
    assert metrics.emd(one_pixel(2, 3, 64), one_pixel(0, 0, 64) > 0).tolist() == [1.0]  # in the same pooled pixel
    for shape, across in (((32, 128), True), ((128, 32), False)):
        maps, masks = torch.zeros(2, *shape), torch.zeros(2, *shape, dtype=torch.bool)
        maps[:, 0, 0] = 1
        masks[0, 0, -1] = masks[1, -1, 0] = True
        scores = metrics.emd(maps, masks)
        # The pooled pixels' centres are 15/16 of a side apart.
        sides = torch.tensor([shape[1], shape[0]]) * 15 / 16
        diagonal = torch.tensor(shape).mul(15 / 16).norm()
        torch.testing.assert_close(scores, (1 - sides / diagonal).double(), rtol=1e-6, atol=1e-6)
        assert (scores[0] < scores[1]) == across


def test_emd_of_a_mask_without_a_positive_pixel_is_undefined():
    masks = torch.zeros(1, 8, 8)
    masks[0, 2, 2] = -1
    assert metrics.emd(torch.rand(1, 8, 8), masks, signed=True).isnan().all()


@pytest.mark.parametrize("name", metrics.names())
def test_metrics_take_the_positive_part_of_maps_with_signs_and_say_so(name):
    maps = torch.randn(4, 12, 12, generator=torch.Generator().manual_seed(0))
    metric, first = metrics.get(name), (maps > 0.5,)
    if metric.needs_model:
        first = (zoo.build("plain"), zoo.images(4))
    expected = metric(*first, maps.clamp_min(0)) if metric.needs_model else metric(maps.clamp_min(0), *first)
    with pytest.warns(AGOPWarning, match="metrics take their positive part"):
        scores = metric(*first, maps) if metric.needs_model else metric(maps, *first)
    assert torch.equal(scores, expected)
    assert scores.isfinite().all()
