"""XAI-TRIS at 8×8 and 64×64: sizes, shapes, positions, masks, backgrounds and the strength of the signal."""

import numpy as np
import pytest
import torch
from PIL import Image

from agop.bench import scenarios
from agop.bench.scenarios import get, names
from agop.errors import UnknownNameError

TASKS = ["linear", "multiplicative", "translations_rotations", "xor"]
T, L = {(1, 1), (2, 1), (2, 2), (3, 1)}, {(4, 5), (5, 5), (6, 5), (6, 6)}
# Rows and columns of the boxes around T and L at 64×64, before smoothing.
LARGE_T, LARGE_L = (slice(8, 32), slice(8, 24)), (slice(32, 56), slice(40, 56))


def large(task, background="white", seed=1, masks="own", samples=200, **options):
    return get(f"{task}-64").with_options({"samples": samples, **options}).splits(background, seed, masks)


def places(mask):
    return {tuple(place) for place in mask.nonzero().tolist()}


def test_networks_have_their_scenarios():
    assert names("xai-tris") == names("xai-tris", "cnn") == TASKS
    assert names("xai-tris", "mlp") == [f"{task}-mlp" for task in TASKS]
    assert names("xai-tris", "llr") == ["linear-llr"]
    assert names("xai-tris-64") == [f"{task}-64" for task in TASKS]


@pytest.mark.parametrize("name", names("xai-tris", "mlp") + names("xai-tris", "llr"))
def test_data_of_every_network_is_that_of_its_task(name):
    scenario = get(name)
    assert name == f"{scenario.task}-{scenario.network_name}"
    for background in scenario.backgrounds:
        both = scenario.splits(background, 3), scenarios.xai_tris(scenario.task, background, 3)
        for split, plain in zip(*both, strict=True):
            for part in ("images", "labels", "masks"):
                assert torch.equal(getattr(split, part), getattr(plain, part))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("background", ["uncorrelated", "white", "correlated", "pink-noise"])
def test_splits_have_their_sizes_balanced_classes_and_range_and_depend_on_the_seed_only(task, background):
    small = background == "uncorrelated"
    splits, again, other = (
        scenarios.xai_tris(task, seed=seed) if small else large(task, background, seed, samples=40)
        for seed in (1, 1, 2)
    )
    assert [len(split) for split in splits] == ([8000, 1000, 1000] if small else [32, 4, 4])
    side = 8 if small else 64
    for split in splits:
        assert split.labels.float().mean() == 0.5
        assert split.images.shape == (len(split), 1, side, side)
        assert split.images.dtype == torch.float32
        assert split.masks.dtype == torch.bool
    assert max(float(split.images.abs().max()) for split in splits) == 1
    assert torch.equal(splits[0].images, again[0].images)
    assert not torch.equal(splits[0].images, other[0].images)


@pytest.mark.parametrize("task", ["linear", "multiplicative"])
def test_each_class_has_its_shape_at_a_fixed_place(task):
    """At 64×64 a mask reaches two pixels beyond the shape: there the smoothed edge is still at or above 0.05."""
    split, part = scenarios.xai_tris(task)[2], large(task)[2]
    for label, shape, (rows, columns) in ((0, T, LARGE_T), (1, L, LARGE_L)):
        masks = split.masks[split.labels == label]
        assert places(masks[0]) == shape
        assert (masks == masks[0]).all()
        masks = part.masks[part.labels == label]
        assert (masks == masks[0]).all()
        inside = masks[0].nonzero()
        assert inside.min(0).values.tolist() == [rows.start - 2, columns.start - 2]
        assert inside.max(0).values.tolist() == [rows.stop + 1, columns.stop + 1]
    union = part.others["union"]
    assert torch.equal(union[0], part.masks[part.labels == 0][0] | part.masks[part.labels == 1][0])
    assert (union == union[0]).all()


@pytest.mark.parametrize("task", TASKS)
def test_union_masks_are_the_published_ground_truth_and_each_kind_carries_the_other(task):
    """Both shapes in every image; only moving shapes have no other place to be absent from."""
    own, union = (scenarios.xai_tris(task, seed=4, masks=kind)[2] for kind in ("own", "union"))
    if task == "translations_rotations":
        assert torch.equal(union.masks, own.masks)
    else:
        assert all(places(mask) == T | L for mask in union.masks[:20])
    for own, union in ((own, union), tuple(large(task, masks=kind)[2] for kind in ("own", "union"))):  # noqa: B020
        assert set(own.others) == {"union"}
        assert set(union.others) == {"own"}
        assert torch.equal(own.others["union"], union.masks)
        assert torch.equal(union.others["own"], own.masks)
        assert torch.equal(own.images, union.images)


def test_true_is_an_alias_of_own_and_signed_masks_come_alone():
    own, alias, signed = (scenarios.xai_tris("xor", masks=kind)[1] for kind in ("own", "true", "signed"))
    assert torch.equal(alias.masks, own.masks)
    assert set(alias.others) == {"union"}
    assert not signed.others
    assert set(signed.masks.unique().tolist()) == {-1, 0, 1}
    assert torch.equal(signed.masks != 0, own.masks)


def test_xor_has_both_shapes_and_their_signs_decide_the_label():
    small, train = scenarios.xai_tris("xor")[0], large("xor", samples=400)[0]
    assert places(small.masks[5]) == T | L
    assert torch.equal(train.masks, train.others["union"])
    for split, means in (
        (small, [torch.stack([small.images[:, 0, r, c] for r, c in shape]).mean(0) for shape in (T, L)]),
        (train, [train.images[:, 0, rows, columns].mean((1, 2)) for rows, columns in (LARGE_T, LARGE_L)]),
    ):
        agreement = means[0] * means[1]
        assert agreement[split.labels == 0].mean() > 0 > agreement[split.labels == 1].mean()


def test_moving_shapes_take_all_positions_and_rotations():
    train = scenarios.xai_tris("translations_rotations")[0]
    assert (train.masks.sum((1, 2)) == 4).all()
    assert (train.masks.float().mean(0) > 0).all()
    distinct = len(np.unique(train.masks[train.labels == 0].flatten(1).numpy(), axis=0))
    assert distinct == 2 * 6 * 7 + 2 * 7 * 6


def test_moving_shapes_at_64_have_half_the_scale_and_take_all_parts_of_the_image():
    train = large("translations_rotations", samples=1000)[0]
    assert train.masks.any(0).float().mean() > 0.99
    whole = [mask for mask in train.masks[:100] if not torch.cat([mask[[0, -1]], mask.T[[0, -1]]]).any()]
    sides = {tuple((np.ptp(mask.nonzero().numpy(), axis=0) + 1).tolist()) for mask in whole}
    assert sides == {(12, 16), (16, 12)}
    inside = train.images[:, 0][train.masks].mean()
    assert inside > 2 * train.images.std()


def test_signal_of_linear_has_the_papers_strength():
    split = scenarios.xai_tris("linear")[0]
    with_signal = split.images[split.labels == 0][:, 0, 2, 1]
    without = split.images[split.labels == 1][:, 0, 2, 1]
    expected = (0.18 / np.sqrt(4)) / (0.82 / np.sqrt(64))  # in units of the background's standard deviation
    assert float((with_signal.mean() - without.mean()) / without.std()) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("task", "alpha", "pixels"), [("linear", 0.03, 256), ("xor", 0.075, 512)])
def test_signal_at_64_has_the_published_strength(task, alpha, pixels):
    """Mean of the T's inside, in units of the background's standard deviation. Smoothing lowers the pattern's norm."""
    train = large(task, samples=1000)[0]
    patch = train.images[:, 0, 11:29, 11:13].mean((1, 2))
    has_t = train.labels == 0
    difference = patch[has_t].mean() - patch[~has_t].mean() if task == "linear" else patch.abs().mean()
    expected = alpha / np.sqrt(pixels) / ((1 - alpha) / 64)
    noise = train.images[:, 0, 40:, :30].std()
    assert float(difference / noise) == pytest.approx(expected, rel=0.25)


def test_correlated_backgrounds_are_smooth():
    for background, low, high in (("white", -0.1, 0.1), ("correlated", 0.95, 1.0), ("pink-noise", 0.5, 0.95)):
        images = large("linear", background)[0].images[:, 0, :, 24:40]
        neighbours = np.corrcoef(images[..., 1:].flatten(), images[..., :-1].flatten())[0, 1]
        assert low < neighbours < high, background


def test_photographs_are_in_one_split_only(tmp_path):
    """At a corner without a shape, an image is its photograph times a factor that all images share."""
    random = np.random.default_rng(0)
    for number in range(40):
        Image.fromarray(random.integers(0, 256, (80, 100, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    corners = [{tuple(image[0, :2, :4].flatten().round(decimals=4).tolist()) for image in part.images}
               for part in large("linear", "photos", photos=str(tmp_path))]  # fmt: skip
    assert [len(part) for part in corners] == [32, 4, 4]
    assert len(set.union(*corners)) == 40


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
        scenarios.xai_tris(*names)
