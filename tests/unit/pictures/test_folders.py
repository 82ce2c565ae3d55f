"""Folders with a folder per class."""

import pytest
from PIL import Image

from agop.errors import InputError
from agop.pictures.folders import ClassFolders
from agop.pictures.preprocessing import Preprocessing


def test_labels_are_the_index_of_the_class_folder(tmp_path):
    for name in ("b/1.png", "a/2.jpg", "a/deep/3.PNG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 5)).save(tmp_path / name)
    (tmp_path / "a" / "notes.txt").write_text("")
    data = ClassFolders(tmp_path, Preprocessing((4, 4)))
    assert data.classes == ["a", "b"]
    assert [(path.name, label) for path, label in data.files] == [("2.jpg", 0), ("3.PNG", 0), ("1.png", 1)]
    batches = data.batches(2)
    assert [labels.tolist() for _, labels in batches] == [[0, 0], [1]]
    assert len(batches) == 2
    with pytest.raises(InputError, match="no images in class folders"):
        ClassFolders(tmp_path / "b", Preprocessing())
