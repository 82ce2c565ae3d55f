import pytest
import torch

from agop.errors import InputError
from agop.model.targets import check_range, labels_for, like_chance, predicted, selection, target_indices


def test_targets_from_one_class_or_one_per_image_and_labels_of_binary_losses():
    assert target_indices(2, 3).tolist() == [2, 2, 2]
    assert target_indices([0, 1, 2], 3).tolist() == [0, 1, 2]
    assert target_indices(torch.tensor([1.0, 0.0]), 2).tolist() == [1, 0]
    assert target_indices(None, 3) is None
    assert labels_for(torch.tensor([[1.0], [0.0]]), 2).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("target", "message"),
    [([0, 1], r"shape \(2,\) for 3 images"), (0.5, "fractions"), ("cat", "cat"), ([True, False, True], "bool"),
     (torch.zeros(3, 1), r"shape \(3, 1\)")],
)  # fmt: skip
def test_invalid_targets_raise(target, message):
    with pytest.raises(InputError, match=message):
        target_indices(target, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(torch.eye(3), r"argmax"), ([0, 1], r"\(2,\) for 3"), (torch.tensor([0.5, 1, 0]), "fractions"),
     (torch.tensor([float("nan"), 0, 0]), "NaN")],
)  # fmt: skip
def test_invalid_labels_raise(labels, message):
    with pytest.raises(InputError, match=message):
        labels_for(labels, 3)


@pytest.mark.parametrize("wrong", [-1, 3, 100])
def test_out_of_range_class_raises_with_the_sample(wrong):
    with pytest.raises(InputError, match=rf"label {wrong} of sample 1 .*0 to 2"):
        check_range(torch.tensor([0, wrong, 2]), 3, "label")


def test_one_logit_means_two_classes():
    logits = torch.tensor([[2.0], [-3.0]])
    assert predicted(logits).tolist() == [1, 0]
    assert (selection(logits, torch.tensor([1, 0])) * logits).sum(1).tolist() == [2, 3]


@pytest.mark.parametrize(("classes", "bound"), [(2, 0.55), (10, 0.19)])
def test_accuracy_like_chance_is_less_than_a_tenth_of_the_way_to_1(classes, bound):
    assert like_chance(bound - 0.001, classes)
    assert not like_chance(bound + 0.001, classes)
