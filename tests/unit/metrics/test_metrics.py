import pytest
import torch
from torch import nn

from agop import metrics
from agop.errors import InputError, UnknownNameError
from tests import zoo

LOCATING = ["pointing_game", "iou", "energy", "average_precision", "rank_accuracy"]


def test_uniform_random_maps_score_what_the_paper_s_random_scores():
    random = torch.Generator().manual_seed(0)
    maps, masks = torch.rand(20_000, 8, 8, generator=random), torch.zeros(20_000, 8, 8, dtype=torch.bool)
    masks[:, 1:4, 1] = masks[:, 2, 2] = True
    for name, expected in (("pointing_game", 0.0625), ("iou", 0.059), ("energy", 0.0625), ("rank_accuracy", 0.0625)):
        scores = metrics.get(name)(maps, masks)
        assert float(scores.mean()) == pytest.approx(expected, abs=4 * float(scores.std()) / 20_000**0.5)


def test_by_hand():
    maps = torch.tensor([[[4.0, 2.0], [1.0, 1.0]]])
    masks = torch.tensor([[[1, 0], [1, 0]]])
    assert metrics.pointing_game(maps, masks).tolist() == [1.0]
    assert metrics.energy(maps, masks).tolist() == [5 / 8]
    assert metrics.iou(maps, masks).tolist() == [1 / 2]  # only the 4 is at or above 2.5
    assert metrics.iou(maps, masks, cut=1 / 3).tolist() == [1 / 3]
    assert metrics.rank_accuracy(maps, masks).tolist() == [1 / 2]
    assert metrics.average_precision(maps, masks).tolist() == [pytest.approx((1 + 2 / 4) / 2)]


def test_ties_have_one_rule_each():
    maps, masks = torch.ones(1, 2, 2), torch.tensor([[[1, 0], [0, 0]]])
    assert metrics.pointing_game(maps, masks).tolist() == [0.25]
    assert metrics.rank_accuracy(maps, masks).tolist() == [0.25]
    assert metrics.average_precision(maps, masks).tolist() == [0.25]
    assert metrics.iou(maps, masks).isnan().all()


@pytest.mark.parametrize("name", LOCATING)
def test_undefined_scores_are_nan_and_leave_the_others_alone(name):
    maps, masks = torch.rand(5, 4, 4) + 0.1, torch.zeros(5, 4, 4, dtype=torch.bool)
    masks[:, 0, 0] = True
    expected = metrics.get(name)(maps, masks)
    maps[1], maps[2, 0, 0], masks[3] = 0, torch.nan, False
    found = metrics.get(name)(maps, masks)
    assert found.isnan().tolist() == [False, True, True, True, False]
    assert torch.equal(found[[0, 4]], expected[[0, 4]])


def test_boolean_integer_and_float_masks_are_the_same_and_signed_ones_are_refused():
    maps, masks = torch.rand(3, 4, 4), torch.rand(3, 4, 4) < 0.4
    masks[:, 0, 0] = True
    for name in LOCATING:
        metric = metrics.get(name)
        for other in (masks.int(), masks.double(), masks.numpy()):
            assert torch.equal(metric(maps, masks), metric(maps, other))
        with pytest.raises(InputError, match=r"other than 0, 1.*signed=True"):
            metric(maps, -masks.int())
        with pytest.raises(InputError, match="other than -1, 0, 1"):
            metric(maps, masks.int() * 2, signed=True)


def test_signed_masks_cancel():
    maps, masks = torch.ones(1, 2, 2), torch.tensor([[[1, -1], [0, 0]]])
    maps[0, 0, 0] = 2
    assert metrics.energy(maps, masks, signed=True).tolist() == [pytest.approx(1 / 5)]
    assert metrics.pointing_game(maps, masks, signed=True).tolist() == [1.0]
    assert metrics.iou(2 - maps, masks, signed=True).tolist() == [pytest.approx(-1 / 4)]


@pytest.mark.parametrize("name", LOCATING)
def test_shapes_and_signs_that_make_no_sense(name):
    metric = metrics.get(name)
    with pytest.raises(InputError, match=r"masks have shape \(2, 5, 5\), maps \(2, 4, 4\)"):
        metric(torch.rand(2, 4, 4), torch.ones(2, 5, 5))
    with pytest.raises(InputError, match=r"maps have shape \(4, 4\)"):
        metric(torch.rand(4, 4), torch.ones(4, 4))
    with pytest.raises(InputError, match=r"maps\.abs"):
        metric(-torch.rand(2, 4, 4), torch.ones(2, 4, 4))


def test_curves_know_what_makes_no_sense():
    model, images = zoo.build("plain"), zoo.images(3)
    with pytest.raises(InputError, match=r"maps have shape \(3, 5, 5\)"):
        metrics.deletion(model, images, torch.rand(3, 5, 5))
    for steps in (0, 145):
        with pytest.raises(InputError, match="give 1 to 144"):
            metrics.insertion(model, images, torch.rand(3, 12, 12), steps=steps)
    with pytest.raises(InputError, match="target 7"):
        metrics.insertion(model, images, torch.rand(3, 12, 12), target=7)


def test_a_zero_map_has_no_order_and_so_no_curve():
    maps = torch.rand(3, 12, 12)
    maps[1] = 0
    found = metrics.deletion(zoo.build("plain"), zoo.images(3), maps)
    assert found.isnan().tolist() == [False, True, False]


class OnePixel(nn.Module):
    """Only the first pixel decides."""

    def forward(self, x):
        return torch.stack([x[:, 0, 0, 0] * 10, torch.zeros(len(x))], dim=1)


def test_a_map_that_knows_the_pixel_falls_first_and_rises_first():
    images, good, bad = torch.ones(1, 1, 4, 4), torch.zeros(1, 4, 4), torch.ones(1, 4, 4)
    good[0, 0, 0], bad[0, 0, 0] = 1, 0.5
    assert metrics.deletion(OnePixel(), images, good) < 0.55 < 0.95 < metrics.deletion(OnePixel(), images, bad)
    assert metrics.insertion(OnePixel(), images, good) > 0.95 > 0.55 > metrics.insertion(OnePixel(), images, bad)


def test_one_logit_models_have_curves():
    found = metrics.deletion(zoo.build("one logit"), zoo.images(3), torch.rand(3, 12, 12))
    assert ((found > 0) & (found < 1)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_the_batch_size_bounds_the_rows_and_changes_nothing(batch_size):
    model, rows, maps = zoo.build("plain"), [], torch.rand(5, 12, 12)
    expected = metrics.insertion(model, zoo.images(), maps)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    found = metrics.insertion(model, zoo.images(), maps, batch_size=batch_size)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert max(rows) <= batch_size


def test_an_unknown_metric():
    with pytest.raises(UnknownNameError, match="did you mean 'pointing_game'"):
        metrics.get("pointing-gam")


def test_what_is_no_batch_of_maps_is_told():
    with pytest.raises(InputError, match="maps is a dict, masks a Tensor: give tensors"):
        metrics.energy({"vanilla": torch.rand(1, 2, 2)}, torch.ones(1, 2, 2, dtype=torch.bool))


@pytest.mark.parametrize("name", metrics.names())
def test_what_a_report_says_has_values_instead_of_names_of_options(name):
    assert "`" not in metrics.get(name).described()["what"]


def test_what_a_report_says_tells_the_cut_the_filling_and_the_steps():
    assert "at or above 0.5 of the map's range" in metrics.get("iou").described()["what"]
    assert "in at most 64 steps, and become 0." in metrics.get("deletion").described()["what"]
    assert "in 16 steps, where all were 0." in metrics.get("insertion").described(16)["what"]
