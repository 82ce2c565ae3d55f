"""Tasks with a planted shortcut: what is drawn where, how often, and in which classes."""

import numpy as np
import pytest
import torch

from agop.errors import InputError
from agop.scenarios.colours import normalised
from agop.scenarios.glyphs import drawn_digits
from agop.scenarios.shortcuts import pictures
from agop.scenarios.shortcuts.plants import KINDS, STRENGTHS, plant
from agop.scenarios.shortcuts.task import PREVALENCES, Case, Source, planted_task
from tests.image_files import save

SIDE = 32


def drawn(kind, strength="strong", seed=3, count=6):
    """Random images (N,32,32,3), the same with the plant, masks, and the plant."""
    images = np.random.default_rng(1).random((count, SIDE, SIDE, 3), dtype=np.float32)
    thing = plant(kind, SIDE, strength, seed)
    return images, *thing.draw(images, np.random.default_rng(2)), thing


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_plants_change_their_mask_and_nothing_else(kind, strength, seed):
    before = np.random.default_rng(1).random((6, SIDE, SIDE, 3), dtype=np.float32)
    images, planted, masks, thing = drawn(kind, strength, seed)
    assert np.array_equal(images, before)  # the originals stay
    assert planted.shape == images.shape
    assert masks.shape == images.shape[:3]
    assert planted.min() >= 0
    assert planted.max() <= 1
    changed = (planted != images).any(axis=3)
    assert not (changed & ~masks).any()
    assert changed.any() == (kind != "clean")
    if thing.fixed is not None:
        assert (masks == thing.fixed).all()
        assert 0 < thing.fixed.mean() < 0.5


def test_only_plants_of_one_place_have_a_region():
    fixed = {kind for kind in KINDS if plant(kind, SIDE, "strong", 0).fixed is not None}
    assert fixed == {"patch", "watermark", "frame"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"clean"}))
def test_weak_plants_change_images_less(kind):
    strong, weak = (np.abs(planted - images).mean() for images, planted, *_ in (drawn(kind), drawn(kind, "weak")))
    assert 0.3 * strong < weak < 0.7 * strong


def test_a_sticker_is_the_same_square_at_another_place_of_each_image():
    _, planted, masks, _ = drawn("sticker", count=20)
    tiles, corners = [], set()
    for image, mask in zip(planted, masks, strict=True):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert mask.sum() == len(rows) * len(columns)
        assert len(rows) == len(columns) <= SIDE // 5
        tiles.append(image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
        corners.add((rows[0], columns[0]))
    assert all(np.array_equal(tile, tiles[0]) for tile in tiles)
    assert len(corners) > 10


def test_another_seed_is_another_plant():
    first, second = (drawn("patch", seed=seed)[1] for seed in (0, 1))
    assert not np.array_equal(first, second)


def task(kind="patch", prevalence="confounder", seed=0, **options):
    return planted_task(Case(kind, prevalence, "strong", seed), Source(**{"samples": 2000, "classes": 4} | options))


def test_same_seed_same_data():
    first, second, other = task("sticker"), task("sticker"), task("sticker", seed=1)
    assert torch.equal(first.training.images, second.training.images)
    assert torch.equal(first.test.labels, second.test.labels)
    assert torch.equal(first.planted, second.planted)
    assert not torch.equal(first.training.images, other.training.images)


@pytest.mark.parametrize("prevalence", PREVALENCES)
def test_prevalences_are_those_of_the_target_and_of_the_others(prevalence):
    data = task(prevalence=prevalence)
    for share, of_target in zip(PREVALENCES[prevalence], (True, False), strict=True):
        own = (data.training.labels == data.target) == of_target
        has = data.training.masks[own].flatten(1).any(dim=1).double()
        assert abs(float(has.mean()) - share) <= 4 * np.sqrt(share * (1 - share) / len(has))


def test_test_images_are_those_with_or_without_the_plant():
    data = task()
    has = data.test.masks.flatten(1).any(dim=1)
    assert torch.equal(data.test.images, torch.where(has[:, None, None, None], data.planted, data.without))
    outside = ~torch.from_numpy(data.plant.fixed)
    assert torch.equal(data.planted[..., outside], data.without[..., outside])
    counts = [len(split.labels) for split in (data.training, data.validation, data.test)]
    assert counts == [1300, 100, 600]
    assert torch.cat([data.training.labels, data.validation.labels, data.test.labels]).bincount().tolist() == [500] * 4


def test_drawn_digits_can_be_read():
    """Each differs from the background by more than the noise, in one channel at least."""
    images, _ = pictures.labelled_images(None, 28)
    digits, _ = drawn_digits(len(images), np.random.default_rng(0))
    for image, digit in zip(images[:200], digits, strict=False):
        difference = image[digit > 200].mean(axis=0) - image[digit == 0].mean(axis=0)
        assert difference.max() > 90


def test_labels_choose_the_classes():
    """A task of digits 3 and 8 has their images as classes 0 and 1."""
    data = task("clean", "none", classes=2, samples=200, labels=(8, 3))
    images, labels = pictures.labelled_images(None, SIDE)
    originals = [normalised(images[labels == label]) for label in (3, 8)]
    assert set(data.test.labels.tolist()) == {0, 1}
    for image, label in zip(data.test.images[:10], data.test.labels.tolist(), strict=False):
        assert (originals[label] == image).flatten(1).all(dim=1).any()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": 1}, "classes is 1: pass 2 or more"),
        ({"samples": 100}, "samples is 100: pass 60 or more per class"),
        ({"classes": 11}, "10 classes, fewer than 11"),
        ({"classes": 2, "labels": (0, 12)}, "label 12 isn't one of 0, 1"),
    ],
)
def test_impossible_tasks_raise(options, problem):
    with pytest.raises(InputError, match=problem):
        task(**options)


def test_class_folders_and_too_few_images(tmp_path):
    for label, level in (("dark", 0), ("light", 255)):
        for place in range(3):
            save(tmp_path / label / f"{place}.png", np.full((40, 40, 3), level))
    images, labels = pictures.labelled_images(tmp_path, SIDE)
    assert images.shape == (6, SIDE, SIDE, 3)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(images[:, 0, 0, 0], [0, 0, 0, 255, 255, 255])
    with pytest.raises(InputError, match="a class has 3 images: pass data with 60 or more"):
        task(path=str(tmp_path), classes=2)
