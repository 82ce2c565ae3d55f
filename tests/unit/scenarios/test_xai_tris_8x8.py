"""XAI-TRIS: sizes, shapes, positions and the strength of the signal."""

import numpy as np
import pytest
import torch

from agop.errors import InputError, UnknownNameError
from agop.scenarios import get, xai_tris

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
