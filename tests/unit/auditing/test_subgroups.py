"""Known groups of images: those by which a model decides are named, with what carries them, and repaired."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import agop
from agop.auditing.data import AuditedModel, read_sample
from agop.auditing.repair import Repair, fit_head
from agop.auditing.subgroups import names_of, read_groups, subgroups
from agop.errors import InputError
from tests import shortcuts

NAMES = ("bar", "pole", "square")


def marked(seed=0, shares=(0.8, 0.15)):
    """Images with a patch in these shares of class 1 and of the others, labels, and which images have it."""
    images, labels = shortcuts.drawn(480, 0.0, seed=seed)
    random = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed))
    has = random < torch.where(labels == shortcuts.PLANTED, *shares)
    images[has] = shortcuts.PLANTS["patch"](images[has])
    return images, labels, ["marked" if each else "plain" for each in has.tolist()]


@pytest.fixture(scope="module")
def data():
    return marked()


@pytest.fixture(scope="module")
def model(data):
    """It looks at the patch, and less at the object."""
    images, labels, _ = data
    return shortcuts.trained(images, labels, steps=60)


def decisive(model, images, labels, groups):
    sample = read_sample(model, images, labels, None, 0, progress=False)
    with AuditedModel.of(model, sample) as audited:
        return subgroups(audited, names_of(groups, sample), NAMES, 0)


def test_group_that_goes_with_a_class_is_named_with_what_carries_it(model, data):
    images, labels, groups = data
    (group,) = decisive(model, *data)
    assert (group.name, group.class_index) == ("marked", shortcuts.PLANTED)
    # Shares and predictions, image by image.
    predicted = model(images).argmax(dim=1)
    for row, own in enumerate((labels == shortcuts.PLANTED, labels != shortcuts.PLANTED)):
        is_marked = torch.tensor([name == "marked" for name in groups])
        assert group.shares[row] == pytest.approx(float(is_marked[own].double().mean()))
        for column, cell in enumerate((own & is_marked, own & ~is_marked)):
            share = float((predicted[cell] == shortcuts.PLANTED).double().mean())
            assert group.taken[row][column] == pytest.approx(share)
    carrier = group.carrier  # a checker of single pixels
    assert carrier.candidate.kind == "high frequency"
    assert "Detail finer than" in group.sentence
    assert carrier.effect.value - carrier.control > 0.2
    assert "Group marked decides class pole" in group.sentence


def test_groups_that_say_nothing_are_not_named(model, data):
    images, labels, _ = data
    for seed in range(20):
        random = np.random.default_rng(seed).choice(["a", "b", "c"], len(labels)).tolist()
        assert not decisive(model, images, labels, random)
    assert not decisive(model, images, labels, [NAMES[label] for label in labels])  # the classes themselves
    honest = shortcuts.trained(*shortcuts.drawn(480, 0.0))
    clean, labels = shortcuts.drawn(480, 0.0, seed=5)
    assert not decisive(honest, clean, labels, data[2])


def test_group_that_all_classes_have_is_not_named_although_the_model_uses_it(model):
    assert not decisive(model, *marked(seed=1, shares=(0.5, 0.5)))


def test_audit_and_repair_with_groups(model, data, tmp_path):
    images, labels, groups = data
    audit = agop.audit(model, images, labels, groups=groups, class_names=NAMES, progress=False)
    assert audit.subgroups[0].sentence in audit.summary()
    audit.save(tmp_path)
    assert "Group marked decides" in (tmp_path / "index.html").read_text()
    audit = replace(audit, findings=())  # the patch may be found without the groups
    repair = Repair.of(model, audit, images, labels, progress=False)
    before, after = (min(values) for values in zip(*repair.subgroups.values(), strict=True))
    assert after > before
    assert "Accuracy by class and group: class bar, marked" in repair.lines[-1]
    # Each group of each class counts alike, in the half that proposes.
    sample = read_sample(model, images, labels, None, 0, progress=False)
    first, _ = sample.halves()
    features = model[:-1](first.images).detach().double().numpy()[None, None].repeat(2, axis=1)
    cells = [(label, groups[int(place)]) for label, place in zip(first.labels.tolist(), first.pictures, strict=True)]
    weight, bias = fit_head(features, first.labels.numpy(), 3, np.array([1 / cells.count(cell) for cell in cells]))
    assert torch.allclose(repair.model[-1].weight, torch.from_numpy(weight).float(), atol=1e-4)
    assert torch.allclose(repair.model[-1].bias, torch.from_numpy(bias).float(), atol=1e-4)
    new, labels, groups = marked(seed=9)
    is_marked = torch.tensor([name == "marked" for name in groups])
    misled = is_marked & (labels != shortcuts.PLANTED)
    old_share, new_share = (
        float((each(new[misled]).argmax(dim=1) == labels[misled]).double().mean()) for each in (model, repair.model)
    )
    assert new_share > old_share + 0.1


def test_missing_groups_raise(model, data):
    images, labels, groups = data
    with pytest.raises(InputError, match="479 groups and 480 images"):
        agop.audit(model, images, labels, groups=groups[1:], progress=False)
    with pytest.raises(InputError, match="have no group"):
        agop.audit(model, images, labels, groups={"0": "a"}, progress=False)
    with pytest.raises(InputError, match="all images are of group a: give two groups or more"):
        agop.audit(model, images, labels, groups=["a"] * len(labels), progress=False)


@pytest.mark.parametrize(
    ("lines", "message"),
    [("a.png,x\na.png,y", "two groups of a.png"), ("a.png,", "the line a.png,: give lines path,group")],
)
def test_groups_that_contradict_or_are_empty_raise(tmp_path, lines, message):
    (tmp_path / "groups.csv").write_text(lines)
    with pytest.raises(InputError, match=message):
        read_groups(tmp_path / "groups.csv", tmp_path)


def test_groups_that_do_not_decide_are_named(model, data):
    images, labels, _ = data
    audit = agop.audit(model, images, labels, groups=[f"camera {n % 2}" for n in range(len(labels))], progress=False)
    assert not audit.subgroups
    assert "No known group decides a class: camera 0, camera 1." in audit.summary()
