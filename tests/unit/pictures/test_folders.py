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
