"""The task's samples as arrays: drawn and cached, or read from a release."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from agop.errors import AGOPWarning, InputError
from agop.scenarios.clevr.cache import cache_folder
from agop.scenarios.clevr.dataset import drawn_dataset, drawn_masks, drawn_sample, official_dataset, unique_objects
from agop.scenarios.clevr.render.images import object_masks, render
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.scene import random_scene
from tests.clevr import write_official

COUNT, SIZE = 12, 32


@pytest.fixture(autouse=True)
def chunks_of_four(monkeypatch):
    monkeypatch.setattr("agop.scenarios.clevr.dataset._CHUNK", 4)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def dataset(chunks_of_four, cache):
    return drawn_dataset(COUNT, SIZE, cache=cache)


def test_drawn_samples_follow_the_task(dataset):
    for number in (0, 7, COUNT - 1):
        index, sample = drawn_sample(0, number)
        scene = random_scene(0, index)
        objects = scene.objects
        material = objects[sample.queried].material
        assert dataset.scenes[number] == index
        assert sample.queried in unique_objects(objects)
        assert dataset.labels[number] == ("metal", "rubber").index(material) == sample.label
        assert sum(each.material == material for each in objects) >= 0.6 * len(objects)
        assert sample.dominant == tuple(i for i, each in enumerate(objects) if each.material == material)
        assert np.array_equal(dataset.images[number], render(scene, SIZE, SIZE))
        masks = [dataset.masks[kind][number] for kind in dataset.masks]
        assert np.array_equal(masks, drawn_masks(scene, sample, SIZE))
        exact = object_masks(scene, SIZE, SIZE).any(axis=0)
        assert (dataset.masks["all_objects"][number] & exact).sum() > 0.95 * exact.sum()


def test_drawn_samples_differ_and_their_masks_are_nested(dataset):
    all_objects, single, dominant = (dataset.masks[kind] for kind in ("all_objects", "single_object", "dominant"))
    assert not (dominant & ~all_objects).any()
    assert not (single & ~dominant).any()
    assert single.any(axis=(1, 2)).all()
    assert 0 < dataset.labels.sum() < COUNT
    assert len(set(dataset.scenes)) == COUNT
    assert len({image.tobytes() for image in dataset.images}) == COUNT


def test_both_labels_are_about_equally_frequent():
    labels = [drawn_sample(0, number)[1].label for number in range(200)]
    assert 80 < sum(labels) < 120


def test_questions_are_only_about_objects_that_are_unique_without_their_material():
    red = SceneObject("cube", "small", "metal", "red", 0, 0, 0)
    blue = replace(red, color="blue")
    twin = replace(red, material="rubber")
    assert unique_objects([red, twin, blue]) == [2]
    assert unique_objects([red, twin]) == []
    assert unique_objects([red, replace(red, size="large"), replace(red, shape="sphere")]) == [0, 1, 2]


@pytest.mark.slow
def test_masks_cover_the_papers_share_of_the_image():
    """16.2 % and 2.3 %. The standard error of a mean over 120 scenes is about 0.6 percentage points."""
    samples = [drawn_sample(1, number) for number in range(120)]
    masks = [drawn_masks(random_scene(1, index), sample, 64) for index, sample in samples]
    covered = np.stack(masks).mean(axis=(0, 2, 3))
    assert covered[0] == pytest.approx(0.162, abs=0.014)
    assert covered[1] == pytest.approx(0.023, abs=0.01)


def test_cached_samples_are_not_drawn_again(dataset, cache, monkeypatch):
    monkeypatch.setattr("agop.scenarios.clevr.dataset.render", None)
    assert_same(drawn_dataset(COUNT, SIZE, cache=cache), dataset)
    assert np.array_equal(drawn_dataset(10, SIZE, cache=cache).images, dataset.images[:10])


def test_corrupt_and_missing_chunks_are_drawn_again(dataset, cache):
    files = sorted(cache.glob("clevr/*/*.npz"))
    assert len(files) == 3
    contents = [path.read_bytes() for path in files]
    files[1].write_bytes(contents[1][:-100] + b"x" * 100)
    files[2].unlink()
    with pytest.warns(AGOPWarning, match="is corrupt: its scenes will be drawn again"):
        assert_same(drawn_dataset(COUNT, SIZE, cache=cache), dataset)
    assert [path.read_bytes() for path in files] == contents


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes_as_one(dataset, cache, tmp_path):
    assert_same(drawn_dataset(COUNT, SIZE, jobs=2, cache=tmp_path), dataset)
    for path in sorted(cache.glob("clevr/*/*")):
        assert (tmp_path / path.relative_to(cache)).read_bytes() == path.read_bytes()


def assert_same(one, other):
    assert np.array_equal(one.images, other.images)
    assert np.array_equal(one.labels, other.labels)
    assert np.array_equal(one.scenes, other.scenes)
    assert all(np.array_equal(one.masks[kind], other.masks[kind]) for kind in other.masks)


def test_cache_folder_comes_from_the_environment(monkeypatch, tmp_path):
    assert str(cache_folder()) == os.environ["AGOP_CACHE"]
    monkeypatch.delenv("AGOP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "agop"


def test_zero_samples_raise():
    with pytest.raises(InputError, match="samples is 0"):
        drawn_dataset(0)


def test_official_samples_of_one_image_are_one_scene_whatever_their_index(tmp_path):
    """Otherwise the split could put an image on both sides."""
    write_official(tmp_path, dict.fromkeys(range(4), "mmm"), {index: index % 4 for index in range(12)})
    path = tmp_path / "CLEVR-XAI_simple_questions.json"
    content = json.loads(path.read_text())
    for place, question in enumerate(content["questions"]):
        question["image_index"] = place
    path.write_text(json.dumps(content))
    official = official_dataset(tmp_path, 16)
    assert len(official.scenes) == 12
    assert len(set(official.scenes)) == 4
    assert len({image.tobytes() for image in official.images[official.scenes == 0]}) == 1
    assert len(official_dataset(tmp_path, 16, 5).scenes) == 5
