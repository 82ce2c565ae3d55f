"""Image files below a folder: links, loops, and what can't be read."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from agop.errors import AGOPWarning, FileError
from agop.pictures.folders import ClassFolders
from agop.pictures.image_files import class_folders, image_files
from agop.pictures.preprocessing import Preprocessing
from tests.image_files import save_random


def names(folder, skip=pytest.fail):
    return [path.relative_to(folder).as_posix() for path in image_files(folder, skip)]


def test_linked_files_and_folders_are_read(tmp_path):
    save_random(tmp_path / "elsewhere", "deep/1.png", "2.jpg")
    save_random(tmp_path / "data", "cat/3.png")
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "cat" / "4.png").symlink_to(tmp_path / "elsewhere" / "2.jpg")
    assert names(tmp_path / "data") == ["cat/3.png", "cat/4.png", "dog/2.jpg", "dog/deep/1.png"]
    data = ClassFolders(tmp_path / "data", Preprocessing((4, 4)))
    assert data.classes == ["cat", "dog"]
    assert [label for _, label in data.files] == [0, 0, 1, 1]


def test_loops_end_and_are_reported(tmp_path):
    save_random(tmp_path, "a/b/1.png")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "self").symlink_to("self")
    messages = []
    assert names(tmp_path, messages.append) == ["a/b/1.png"]
    assert sorted(messages) == [
        f"{tmp_path / 'a/b/up'} is a link to {tmp_path / 'a'}, which contains it",
        f"{tmp_path / 'a/self'} can't be read: broken link",
    ]


def test_broken_links_are_reported_unless_they_are_other_files(tmp_path):
    save_random(tmp_path, "cat/1.png")
    for name in ("cat/2.png", "dog", "cat/notes.txt"):
        (tmp_path / name).symlink_to("gone")
    messages = []
    assert names(tmp_path, messages.append) == ["cat/1.png"]
    assert sorted(messages) == [f"{tmp_path / name} can't be read: broken link" for name in ("cat/2.png", "dog")]


@pytest.fixture
def shared():
    """A folder that other users can read: pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextmanager
def ordinary_user():
    """Root can read everything: be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o644], ids=["unreadable", "not searchable"])
def test_folder_without_permission_is_reported(shared, mode):
    save_random(shared, "cat/1.png", "dog/2.png")
    (shared / "dog").chmod(mode)
    messages = []
    with ordinary_user():
        assert names(shared, messages.append) == ["cat/1.png"]
        with pytest.warns(AGOPWarning, match=r"skipped: .*dog.* can't be read: Permission denied"):
            assert len(ClassFolders(shared, Preprocessing((4, 4)))) == 1
    [message] = messages
    assert f"{shared / 'dog'}" in message
    assert message.endswith("can't be read: Permission denied")
    (shared / "dog").chmod(0o755)


def test_class_folders_are_sorted_and_hidden_ones_ignored(tmp_path):
    for name in ("b", "a", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert class_folders(tmp_path) == ["a", "b"]
    with pytest.raises(FileError, match="nowhere can't be read"):
        class_folders(tmp_path / "nowhere")


def test_names_that_are_not_utf8(tmp_path):
    save_random(tmp_path, "cat/1.png")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/cat/\xff\xfe.png")
    os.rename(tmp_path / "cat" / "1.png", odd)
    data = ClassFolders(tmp_path, Preprocessing((4, 4)))
    assert [str(path) for path, _ in data.files] == [odd]
    assert data.summary()["count"] == 1
