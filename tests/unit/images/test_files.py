"""Folders of images: links, labels from class folders, and where class names come from."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import agop
from agop import Preprocessing
from agop.errors import AGOPWarning, FileError, InputError
from agop.images.files import ClassFolders, ImageFolder, class_folders, class_index, class_names, image_files
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
    with pytest.raises(FileError, match="nowhere can't be read"):
        class_folders(tmp_path / "nowhere")
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


def image_names(folder, skip=pytest.fail):
    return [path.relative_to(folder).as_posix() for path in image_files(folder, skip)]


def test_linked_files_and_folders_are_read(tmp_path):
    save_random(tmp_path / "elsewhere", "deep/1.png", "2.jpg")
    save_random(tmp_path / "data", "cat/3.png")
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "cat" / "4.png").symlink_to(tmp_path / "elsewhere" / "2.jpg")
    assert image_names(tmp_path / "data") == ["cat/3.png", "cat/4.png", "dog/2.jpg", "dog/deep/1.png"]
    data = ClassFolders(tmp_path / "data", Preprocessing((4, 4)))
    assert data.classes == ["cat", "dog"]
    assert [label for _, label in data.files] == [0, 0, 1, 1]


def test_loops_end_and_are_reported_as_are_broken_links_unless_they_are_other_files(tmp_path):
    save_random(tmp_path, "a/b/1.png")
    links = {"a/b/up": tmp_path / "a", "a/self": "self", "a/2.png": "gone", "dog": "gone", "a/notes.txt": "gone"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    messages = []
    assert image_names(tmp_path, messages.append) == ["a/b/1.png"]
    assert set(messages) == {
        f"{tmp_path / 'a/b/up'} is a link to {tmp_path / 'a'}, which contains it",
        *(f"{tmp_path / name} can't be read: broken link" for name in ("a/self", "a/2.png", "dog")),
    }
    assert len(messages) == 4


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
        assert image_names(shared, messages.append) == ["cat/1.png"]
        with pytest.warns(AGOPWarning, match=r"skipped: .*dog.* can't be read: Permission denied"):
            assert len(ClassFolders(shared, Preprocessing((4, 4)))) == 1
    [message] = messages
    assert f"{shared / 'dog'}" in message
    assert message.endswith("can't be read: Permission denied")
    (shared / "dog").chmod(0o755)


@pytest.fixture
def prior(tmp_path):
    """A prior with class names."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    fitted = agop.fit(model, [torch.randn(4, 1, 2, 2)], only_correct=False, progress=False)
    fitted.save(tmp_path / "prior.safetensors", classes=["tee", "ell"])
    return agop.AGOP.load(tmp_path / "prior.safetensors")


def test_file_comes_before_the_prior_and_names_for_another_number_of_classes_are_not_used(prior, tmp_path):
    (tmp_path / "names.txt").write_text("a\n\n b \n")
    assert class_names(prior, tmp_path / "names.txt", 2) == ("a", "b")
    assert [class_names(prior, count=count) for count in (2, 3)] == [("tee", "ell"), ()]
    with pytest.raises(InputError, match="has 2 class names, the model 3 classes"):
        class_names(prior, tmp_path / "names.txt", 3)
    with pytest.raises(FileError, match=r"can't read class names from .*gone\.txt"):
        class_names(None, tmp_path / "gone.txt")


def with_labels(labels):
    """A model with a Hugging Face config."""
    model = torch.nn.Flatten()
    model.config = SimpleNamespace(id2label=labels)
    return model


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({1: "dog", 0: "cat"}, ("cat", "dog")),
        ({0: "LABEL_0", 1: "LABEL_1"}, ()),
        ({0: "cat", 1: "dog", 2: "cow"}, ()),
        ({0: "cat", 2: "dog"}, ()),
        (None, ()),
    ],
)
def test_names_of_a_hugging_face_model_come_after_those_of_the_prior(prior, labels, names):
    assert class_names(None, None, 2, with_labels(labels)) == names
    assert class_names(prior, None, 2, with_labels(labels)) == ("tee", "ell")


def test_class_by_name_or_number():
    names = ("cat", "dog", "7", "cat")
    assert [class_index(text, names) for text in ("dog", "0", "9")] == [1, 0, 9]
    with pytest.warns(AGOPWarning, match="target 7 is the class named '7', which has the number 2"):
        assert class_index("7", names) == 2
    with pytest.raises(InputError, match="2 classes are named 'cat': give a number, 0, 3"):
        class_index("cat", names)
    with pytest.raises(InputError, match="did you mean 'dog'"):
        class_index("dogs", names)
    for text in ("dog", "-1", "1.5", "²"):
        with pytest.raises(InputError, match="no class is named"):
            class_index(text, ())
