"""XAI-TRIS: sizes, shapes, positions and the strength of the signal."""

import numpy as np
import pytest
import torch

from agop.errors import InputError, UnknownNameError
from agop.scenarios import get, names, xai_tris

SCENARIOS = ["linear", "multiplicative", "translations_rotations", "xor"]
T, L = {(1, 1), (2, 1), (2, 2), (3, 1)}, {(4, 5), (5, 5), (6, 5), (6, 6)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_splits_have_their_sizes_balanced_classes_and_range_and_depend_on_the_seed_only(scenario):
    splits, again, other = (xai_tris(scenario, seed=seed) for seed in (1, 1, 2))
    assert [len(split) for split in splits] == [8000, 1000, 1000]
    for split in splits:
        assert split.labels.float().mean() == 0.5
        assert split.images.shape == (len(split), 1, 8, 8)
        assert split.masks.dtype == torch.bool
    assert max(float(split.images.abs().max()) for split in splits) == 1
    assert torch.equal(splits[0].images, again[0].images)
    assert not torch.equal(splits[0].images, other[0].images)


@pytest.mark.parametrize("scenario", ["linear", "multiplicative"])
def test_each_class_has_its_shape_at_a_fixed_position(scenario):
    split = xai_tris(scenario)[2]
    for label, shape in ((0, T), (1, L)):
        masks = split.masks[split.labels == label]
        assert {tuple(pixel) for pixel in masks[0].nonzero().tolist()} == shape
        assert (masks == masks[0]).all()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_union_masks_are_the_published_ground_truth_and_each_kind_carries_the_other(scenario):
    """Both shapes in every image; only moving shapes have no other place to be absent from."""
    own, union = (xai_tris(scenario, seed=4, masks=kind)[2] for kind in ("own", "union"))
    if scenario == "translations_rotations":
        assert torch.equal(union.masks, own.masks)
    else:
        assert all({tuple(p) for p in mask.nonzero().tolist()} == T | L for mask in union.masks[:20])
        assert torch.equal(union.masks, union.masks[:1].expand_as(union.masks))
    assert set(own.others) == {"union"}
    assert set(union.others) == {"own"}
    assert torch.equal(own.others["union"], union.masks)
    assert torch.equal(union.others["own"], own.masks)
    assert torch.equal(own.images, union.images)


def test_true_is_an_alias_of_own_and_signed_masks_come_alone():
    own, alias, signed = (xai_tris("xor", masks=kind)[1] for kind in ("own", "true", "signed"))
    assert torch.equal(alias.masks, own.masks)
    assert set(alias.others) == {"union"}
    assert not signed.others
    assert set(signed.masks.unique().tolist()) == {-1, 0, 1}
    assert torch.equal(signed.masks != 0, own.masks)


@pytest.mark.parametrize("name", names("xai-tris", "mlp") + names("xai-tris", "llr"))
def test_data_of_every_network_is_that_of_its_task(name):
    scenario = get(name)
    assert name == f"{scenario.task}-{scenario.network_name}"
    for background in scenario.backgrounds:
        for split, plain in zip(scenario.splits(background, 3), xai_tris(scenario.task, background, 3), strict=True):
            assert torch.equal(split.images, plain.images)
            assert torch.equal(split.labels, plain.labels)
            assert torch.equal(split.masks, plain.masks)


def test_networks_have_their_scenarios():
    assert names("xai-tris") == names("xai-tris", "cnn") == SCENARIOS
    assert names("xai-tris", "mlp") == [f"{name}-mlp" for name in SCENARIOS]
    assert names("xai-tris", "llr") == ["linear-llr"]


def test_xor_masks_hold_both_shapes_and_the_signs_decide_the_label():
    train = xai_tris("xor")[0]
    assert {tuple(pixel) for pixel in train.masks[5].nonzero().tolist()} == T | L
    t, l_shape = (torch.stack([train.images[:, 0, r, c] for r, c in shape]).mean(0) for shape in (T, L))
    agreement = (t * l_shape)[train.labels == 0].mean(), (t * l_shape)[train.labels == 1].mean()
    assert agreement[0] > 0 > agreement[1]


def test_moving_shapes_take_all_positions_and_rotations():
    train = xai_tris("translations_rotations")[0]
    assert (train.masks.sum((1, 2)) == 4).all()
    assert (train.masks.float().mean(0) > 0).all()
    distinct = len(np.unique(train.masks[train.labels == 0].flatten(1).numpy(), axis=0))
    assert distinct == 2 * 6 * 7 + 2 * 7 * 6


def test_signal_of_linear_has_the_papers_strength():
    split = xai_tris("linear")[0]
    with_signal = split.images[split.labels == 0][:, 0, 2, 1]
    without = split.images[split.labels == 1][:, 0, 2, 1]
    expected = (0.18 / np.sqrt(4)) / (0.82 / np.sqrt(64))  # in units of the background's standard deviation
    assert float((with_signal.mean() - without.mean()) / without.std()) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (("liner",), "linear"),
        (("linear", "corelated"), "correlated"),
        (("linear", "correlated", 0, "singed"), "signed"),
    ],
)
def test_unknown_names_raise_with_suggestion(names, known):
    with pytest.raises(UnknownNameError, match=f"did you mean '{known}'"):
        xai_tris(*names)


def test_scenario_without_options_rejects_options():
    assert get("linear").with_options({}) is get("linear")
    with pytest.raises(InputError, match="linear has no options: remove size"):
        get("linear").with_options({"size": 8})
