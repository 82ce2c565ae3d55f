import numpy as np
import pytest
import torch

from agop.errors import UnknownNameError
from agop.networks import CNN8by8
from agop.scenarios import xai_tris

SCENARIOS = ["linear", "multiplicative", "translations_rotations", "xor"]
T, L = {(1, 1), (2, 1), (2, 2), (3, 1)}, {(4, 5), (5, 5), (6, 5), (6, 6)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sizes_classes_and_range(scenario):
    splits = xai_tris(scenario)
    assert [len(split) for split in splits] == [8000, 1000, 1000]
    for split in splits:
        assert split.labels.float().mean() == 0.5
        assert split.images.shape == (len(split), 1, 8, 8)
        assert split.masks.dtype == torch.bool
    assert max(float(split.images.abs().max()) for split in splits) == 1


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_seed_decides(scenario):
    first, again, other = (xai_tris(scenario, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize("scenario", ["linear", "multiplicative"])
def test_fixed_positions(scenario):
    split = xai_tris(scenario)[2]
    for label, shape in ((0, T), (1, L)):
        masks = split.masks[split.labels == label]
        assert {tuple(pixel) for pixel in masks[0].nonzero().tolist()} == shape
        assert (masks == masks[0]).all()


def test_xor_masks_hold_both_shapes_and_the_label_is_in_the_signs():
    train = xai_tris("xor")[0]
    assert {tuple(pixel) for pixel in train.masks[5].nonzero().tolist()} == T | L
    t, low = (torch.stack([train.images[:, 0, r, c] for r, c in shape]).mean(0) for shape in (T, L))
    agreement = (t * low)[train.labels == 0].mean(), (t * low)[train.labels == 1].mean()
    assert agreement[0] > 0 > agreement[1]


def test_moving_shapes_go_everywhere_in_four_turns():
    train = xai_tris("translations_rotations")[0]
    assert (train.masks.sum((1, 2)) == 4).all()
    assert (train.masks.float().mean(0) > 0).all()
    distinct = len(np.unique(train.masks[train.labels == 0].flatten(1).numpy(), axis=0))
    assert distinct == 2 * 6 * 7 + 2 * 7 * 6


def test_the_signal_has_the_paper_s_share_on_linear():
    split = xai_tris("linear")[0]
    t_there = split.images[split.labels == 0][:, 0, 2, 1].mean()
    t_not_there = split.images[split.labels == 1][:, 0, 2, 1].mean()
    spread = split.images[split.labels == 1][:, 0, 2, 1].std()
    expected = (0.18 / np.sqrt(4)) / (0.82 / np.sqrt(64))  # in units of the background's standard deviation
    assert float((t_there - t_not_there) / spread) == pytest.approx(expected, rel=0.1)


def test_an_unknown_scenario():
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        xai_tris("liner")


def test_cnn8by8_has_234_parameters_and_the_paper_s_maps():
    model, maps = CNN8by8(), []
    assert sum(p.numel() for p in model.parameters()) == 234
    for conv in (model.conv1, model.conv2, model.conv3, model.conv4):
        conv.register_forward_hook(lambda *a: maps.append(tuple(a[2].shape[-2:])))
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 2)
    assert maps == [(9, 9), (5, 5), (3, 3), (2, 2)]
