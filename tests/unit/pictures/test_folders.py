"""Folders with a folder per class."""

import pytest

from agop.errors import InputError
from agop.pictures.folders import ClassFolders
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
