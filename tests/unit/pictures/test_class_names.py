"""Where class names come from."""

from types import SimpleNamespace

import pytest
import torch

import agop
from agop.errors import AGOPWarning, FileError, InputError
from agop.pictures.class_names import class_index, class_name, class_names, folder_classes


@pytest.fixture
def prior(tmp_path):
    """A prior with class names."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    fitted = agop.fit(model, [torch.randn(4, 1, 2, 2)], only_correct=False, progress=False)
    fitted.save(tmp_path / "prior.safetensors", classes=["tee", "ell"])
    return agop.AGOP.load(tmp_path / "prior.safetensors")


def test_file_comes_before_the_prior(prior, tmp_path):
    (tmp_path / "names.txt").write_text("a\n\n b \n")
    assert class_names(prior, tmp_path / "names.txt", 2) == ("a", "b")
    assert class_names(prior, count=2) == ("tee", "ell")
    assert class_names(None, count=2) == ()


def test_missing_files_raise_and_names_for_another_number_of_classes_are_not_used(prior, tmp_path):
    assert class_names(prior, count=3) == ()
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="has 3 class names, the model 2 classes"):
        class_names(prior, tmp_path / "names.txt", 2)
    with pytest.raises(FileError, match=r"can't read class names from .*gone\.txt"):
        class_names(None, tmp_path / "gone.txt")


def test_class_of_a_folder_is_that_of_its_name_or_without_names_its_position():
    assert folder_classes(["cat", "dog"], ("bird", "cat", "dog"), 3) == {"cat": 1, "dog": 2}
    assert folder_classes(["cat", "newt"], ("bird", "cat"), 2) == {"cat": 1}
    assert folder_classes(["cat", "dog"], (), 2) == {"cat": 0, "dog": 1}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"the model has 3 classes, but the images have folders for 2 \(cat, dog\): pass --names FILE"),
        (("cat", "cat", "dog"), "2 classes are named cat: use a name for one class only"),
    ],
)
def test_ambiguous_class_of_a_folder_raises(names, message):
    with pytest.raises(InputError, match=message):
        folder_classes(["cat", "dog"], names, 3)


def test_class_without_a_name_has_its_number():
    assert [class_name(names, 1) for names in (("a", "b"), ("a",), ())] == ["b", "class 1", "class 1"]


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
