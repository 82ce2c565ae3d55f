"""Where class names come from."""

import pytest
import torch

import agop
from agop.errors import FileError, InputError
from agop.pictures.class_names import class_indices, class_name, class_names


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
    assert class_indices(["cat", "dog"], ("bird", "cat", "dog"), 3) == {"cat": 1, "dog": 2}
    assert class_indices(["cat", "newt"], ("bird", "cat"), 2) == {"cat": 1}
    assert class_indices(["cat", "dog"], (), 2) == {"cat": 0, "dog": 1}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"the model has 3 classes, but the images have folders for 2 \(cat, dog\): pass --names FILE"),
        (("cat", "cat", "dog"), "2 classes are named cat: use a name for one class only"),
    ],
)
def test_ambiguous_class_of_a_folder_raises(names, message):
    with pytest.raises(InputError, match=message):
        class_indices(["cat", "dog"], names, 3)


def test_class_without_a_name_has_its_number():
    assert [class_name(names, 1) for names in (("a", "b"), ("a",), ())] == ["b", "class 1", "class 1"]
