"""Folders of images, with a folder per class or without labels."""

import pytest

from agop.errors import InputError
from agop.pictures.folders import ClassFolders, ImageFolder
from agop.pictures.preprocessing import Preprocessing
from tests.image_files import save_random


def test_labels_are_the_index_of_the_class_folder(tmp_path):
    save_random(tmp_path, "b/1.png", "a/2.jpg", "a/deep/3.PNG")
    (tmp_path / "a" / "notes.txt").write_text("")
    data = ClassFolders(tmp_path, Preprocessing((4, 4)))
    assert data.classes == ["a", "b"]
    assert [(path.name, label) for path, label in data.files] == [("2.jpg", 0), ("3.PNG", 0), ("1.png", 1)]
    batches = data.batches(2)
    assert [labels.tolist() for _, labels in batches] == [[0, 0], [1]]
    assert len(batches) == 2
    with pytest.raises(InputError, match="no images in class folders"):
        ClassFolders(tmp_path / "b", Preprocessing())


def test_a_folder_without_labels_holds_all_images_below_it(tmp_path):
    save_random(tmp_path, "b/1.png", "a/2.jpg", "3.PNG")
    data = ImageFolder(tmp_path, Preprocessing((4, 4)))
    assert [(path.name, label) for path, label in data.files] == [("3.PNG", None), ("2.jpg", None), ("1.png", None)]
    assert [(len(images), labels) for images, labels in data.batches(2)] == [(2, None), (1, None)]
    assert data.classes == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no images"):
        ImageFolder(tmp_path / "empty", Preprocessing())


def test_equal_names_in_two_folders_are_different_images(tmp_path):
    save_random(tmp_path, "x/1.png", "y/1.png")
    summary = ImageFolder(tmp_path, Preprocessing()).summary()
    assert summary["count"] == len(set(summary["some"])) == 2


@pytest.mark.parametrize(("count", "names"), [(1, "0"), (2, "05"), (3, "048"), (9, "02468"), (10, "0123456789")])
def test_spread_images_are_evenly_spaced(tmp_path, count, names):
    save_random(tmp_path, *(f"a/{index}.png" for index in range(10)))
    spread = ClassFolders(tmp_path, Preprocessing((4, 4))).spread(count)
    assert "".join(path.stem for path, _ in spread.files) == names
    assert len(spread) <= count


def test_hidden_folders_are_not_classes_and_labels_follow_the_model_s_class_names(tmp_path):
    save_random(tmp_path, ".cache/0.png", "b/1.png", "a/2.png", "a/.thumbnails/2.png")
    (tmp_path / "notes").mkdir()
    data = ClassFolders(tmp_path, Preprocessing((4, 4)))
    assert data.classes == ["a", "b", "notes"]
    assert [(path.name, label) for path, label in data.files] == [("2.png", 0), ("1.png", 1)]
    named = data.with_classes(("c", "b", "a"), 3)
    assert named.classes == ["c", "b", "a"]
    assert [(path.name, label) for path, label in named.files] == [("2.png", 2), ("1.png", 1)]
    assert named.summary()["names"] == data.summary()["names"]
    assert data.with_classes((), 3).files == data.files
    with pytest.raises(InputError, match="the images have folders for 3"):
        data.with_classes((), 4)
    with pytest.raises(InputError, match=r"b isn't one of the model's classes \(a, c\): rename it, or change --names"):
        data.with_classes(("a", "c"), 2)
