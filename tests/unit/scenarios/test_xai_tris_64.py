"""XAI-TRIS at 64×64: shapes, masks, backgrounds and options."""

import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import InputError, UnknownNameError
from agop.scenarios import get, names

TASKS = ["linear", "multiplicative", "translations_rotations", "xor"]
# Rows and columns of the boxes around T and L, before smoothing.
T, L = (slice(8, 32), slice(8, 24)), (slice(32, 56), slice(40, 56))


def splits(task, background="white", seed=1, masks="own", samples=200, **options):
    return get(f"{task}-64").with_options({"samples": samples, **options}).splits(background, seed, masks)


def test_benchmark_has_four_scenarios():
    assert names("xai-tris-64") == [f"{task}-64" for task in TASKS]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("background", ["white", "correlated", "pink-noise"])
def test_splits_have_their_sizes_balanced_classes_and_range_and_depend_on_the_seed_only(task, background):
    parts, again, other = (splits(task, background, seed, samples=40) for seed in (1, 1, 2))
    assert [len(part) for part in parts] == [32, 4, 4]
    for part in parts:
        assert part.labels.float().mean() == 0.5
        assert part.images.shape == (len(part), 1, 64, 64)
        assert part.images.dtype == torch.float32
        assert part.masks.dtype == torch.bool
    assert max(float(part.images.abs().max()) for part in parts) == 1
    assert torch.equal(parts[0].images, again[0].images)
    assert not torch.equal(parts[0].images, other[0].images)


@pytest.mark.parametrize("task", ["linear", "multiplicative"])
def test_each_class_has_its_shape_at_a_fixed_place_and_the_union_has_both(task):
    """A mask reaches two pixels beyond the shape: there the smoothed edge is still at or above 0.05."""
    part = splits(task)[2]
    for label, (rows, columns) in ((0, T), (1, L)):
        masks = part.masks[part.labels == label]
        assert (masks == masks[0]).all()
        inside = masks[0].nonzero()
        assert inside.min(0).values.tolist() == [rows.start - 2, columns.start - 2]
        assert inside.max(0).values.tolist() == [rows.stop + 1, columns.stop + 1]
    union = part.others["union"]
    assert torch.equal(union[0], part.masks[part.labels == 0][0] | part.masks[part.labels == 1][0])
    assert (union == union[0]).all()
    other = splits(task, masks="union")[2]
    assert torch.equal(other.masks, union)
    assert torch.equal(other.others["own"], part.masks)


def test_xor_has_both_shapes_and_their_signs_decide_the_label():
    train = splits("xor", samples=400)[0]
    t, l_shape = (train.images[:, 0, rows, columns].mean((1, 2)) for rows, columns in (T, L))
    agreement = t * l_shape
    assert agreement[train.labels == 0].mean() > 0 > agreement[train.labels == 1].mean()
    assert torch.equal(train.masks, train.others["union"])


def test_moving_shapes_have_half_the_scale_and_take_all_parts_of_the_image():
    train = splits("translations_rotations", samples=1000)[0]
    assert torch.equal(train.masks, train.others["union"])
    assert train.masks.any(0).float().mean() > 0.99
    whole = [mask for mask in train.masks[:100] if not torch.cat([mask[[0, -1]], mask.T[[0, -1]]]).any()]
    sides = {tuple((np.ptp(mask.nonzero().numpy(), axis=0) + 1).tolist()) for mask in whole}
    assert sides == {(12, 16), (16, 12)}
    inside = train.images[:, 0][train.masks].mean()
    assert inside > 2 * train.images.std()


@pytest.mark.parametrize(("task", "alpha", "pixels"), [("linear", 0.03, 256), ("xor", 0.075, 512)])
def test_signal_has_the_published_strength(task, alpha, pixels):
    """Mean of the T's inside, in units of the background's standard deviation. Smoothing lowers the pattern's norm."""
    train = splits(task, samples=1000)[0]
    patch = train.images[:, 0, 11:29, 11:13].mean((1, 2))
    has_t = train.labels == 0
    difference = patch[has_t].mean() - patch[~has_t].mean() if task == "linear" else patch.abs().mean()
    expected = alpha / np.sqrt(pixels) / ((1 - alpha) / 64)
    noise = train.images[:, 0, 40:, :30].std()
    assert float(difference / noise) == pytest.approx(expected, rel=0.25)


def test_correlated_backgrounds_are_smooth():
    for background, low, high in (("white", -0.1, 0.1), ("correlated", 0.95, 1.0), ("pink-noise", 0.5, 0.95)):
        images = splits("linear", background)[0].images[:, 0, :, 24:40]
        neighbours = np.corrcoef(images[..., 1:].flatten(), images[..., :-1].flatten())[0, 1]
        assert low < neighbours < high, background


@pytest.fixture
def photos(tmp_path):
    """Forty pictures of noise."""
    random = np.random.default_rng(0)
    for number in range(40):
        Image.fromarray(random.integers(0, 256, (80, 100, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    return tmp_path


def test_photographs_are_in_one_split_only(photos):
    """At a corner without a shape, an image is its photograph times a factor that all images share."""
    train, validation, test = splits("linear", "photos", photos=str(photos))
    corners = [{tuple(image[0, :2, :4].flatten().round(decimals=4).tolist()) for image in part.images}
               for part in (train, validation, test)]  # fmt: skip
    assert [len(part) for part in corners] == [32, 4, 4]
    assert len(corners[0] | corners[1] | corners[2]) == 40


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"photo": "x"}, UnknownNameError, "did you mean 'photos'"),
        ({"samples": 7}, InputError, "samples is 7: pass an even number"),
        ({}, InputError, "photographs are missing: pass photos=FOLDER"),
    ],
)
def test_wrong_options_raise(options, error, message):
    with pytest.raises(error, match=message):
        get("linear-64").with_options(options).splits("photos", 0)


def test_too_few_photographs_raise(tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "one.png")
    with pytest.raises(InputError, match="photographs or digits: 1, too few"):
        splits("linear", "photos", photos=str(tmp_path))


def test_description_names_the_stand_in():
    assert "pink noise is a stand-in for photographs" in get("xor-64").description
    assert "photographs from pictures" in get("xor-64").with_options({"photos": "pictures"}).description
