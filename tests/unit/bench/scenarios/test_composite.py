"""Digits on photographs: places, masks, options, and disjoint splits."""

import numpy as np
import pytest
import torch

from agop.bench.scenarios import get, names
from tests.image_files import idx


def splits(name="composite", background="pink-noise", seed=1, samples=200, **options):
    return get(name).with_options({"samples": samples, **options}).splits(background, seed)


def bytes_of(images):
    """Images (N,S,S,3) of bytes from normalised ones (N,3,S,S)."""
    black, white = (torch.tensor(extreme).view(3, 1, 1) for extreme in (get("composite").black, get("composite").white))
    return ((images - black) / (white - black) * 255).round().permute(0, 2, 3, 1)


@pytest.mark.parametrize("name", names("composite"))
@pytest.mark.parametrize("size", [32, 64])
def test_splits_have_their_sizes_all_classes_and_depend_on_the_seed_only(name, size):
    parts, again, other = (splits(name, seed=seed, size=size) for seed in (1, 1, 2))
    assert [len(part) for part in parts] == [160, 20, 20]
    assert parts[0].labels.bincount().min() > 0
    for part in parts:
        assert part.images.shape == (len(part), 3, size, size)
        assert part.masks.dtype == torch.bool
        assert 0.02 < part.masks.float().mean() < 0.12
    assert torch.equal(parts[0].images, again[0].images)
    assert not torch.equal(parts[0].images, other[0].images)


def test_moving_digits_are_everywhere_and_still_ones_in_the_middle():
    moving, still = (splits(name, samples=1000)[0].masks.float().mean(0) for name in ("composite", "composite-still"))
    assert moving[2:-2].sum(1).min() > 0
    assert moving[:, 3:-3].sum(0).min() > 0
    assert moving.max() < still.max() / 1.5
    assert still[:4].sum() == still[-4:].sum() == still[:, :2].sum() == still[:, -2:].sum() == 0


@pytest.fixture
def files(tmp_path):
    """Forty digits, each a square of its own size, and forty photographs, each of one colour."""
    digits = np.zeros((40, 28, 28), np.uint8)
    for number, digit in enumerate(digits):
        digit[4 : 6 + number // 2, 4:24] = 255
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(digits))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(40) % 10))
    photos = np.broadcast_to(np.arange(40, dtype=np.uint8)[:, None, None, None] * 5, (40, 32, 32, 3))
    np.savez(tmp_path / "photos.npz", photos)
    return {"digits": str(tmp_path), "photos": str(tmp_path / "photos.npz")}


def test_mask_is_the_digit_and_all_of_it_has_one_colour(files):
    test = splits("composite", "photos", **files)[2]
    for image, mask in zip(bytes_of(test.images), test.masks, strict=True):
        background = image[~mask].mode(0).values
        colour = image[mask].mode(0).values
        outside = (image - background).abs().amax(-1) > (colour - background).abs().max() / 2 + 1
        assert not (outside & ~mask).any()
        rows, columns = mask.nonzero().T
        box = mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert box.sum() >= box.numel() - 4  # interpolation rounds the corners


def test_photographs_and_digits_are_in_one_split_only(files):
    parts = splits("composite-still", "photos", **files)
    photos = [set(bytes_of(part.images)[:, 0, 0, 0].tolist()) for part in parts]
    assert [len(part) for part in photos] == [32, 4, 4]
    assert len(set.union(*photos)) == 40
    labels = [part.labels.unique().tolist() for part in parts]
    assert [len(part) <= most for part, most in zip(labels, (10, 4, 4), strict=True)] == [True] * 3
