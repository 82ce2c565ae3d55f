"""fit(): the paper's Algorithm 1, moments of the images, snapshots, and errors."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import agop
from agop.errors import GradientError, InputError, NoSamplesError
from tests import zoo
from tests.state import same
from tests.zoo import algorithm_1, batches

PARTS = ("diagonal", "class_diagonals", "class_counts", "patch_matrix", "image_moments")


@pytest.mark.parametrize("kind", zoo.KINDS)
def test_fit_computes_algorithm_1(kind):
    model, data = zoo.build(kind), []
    for images, _ in batches(3):
        labels = zoo.per_sample_loop(model, images)[1]
        labels[::3] = (labels[::3] + 1) % 2  # some are wrong
        data.append((images, labels))
    expected, count = algorithm_1(model, data, only_correct=True)
    prior = agop.fit(model.train(), data, progress=False)
    assert prior.count == count
    torch.testing.assert_close(prior.diagonal, expected, rtol=1e-3, atol=1e-9)


def test_folding_batch_norms_does_not_depend_on_the_data():
    """A part starts with an image on which folding flips a ReLU. The mean of the parts must still be the whole."""
    model, images = zoo.trained_resnet(), zoo.images(128, shape=(3, 32, 32))
    ours, theirs = (agop.input_gradients(m, images).values for m in (model, agop.prepare(model)))
    order = (ours - theirs).abs().flatten(1).amax(1).argsort(descending=True)
    assert (ours - theirs)[order[0]].abs().max() > 1e-3 * ours.abs().max()
    parts = images[order].split(64)
    options = {"only_correct": False, "progress": False}
    diagonals = [agop.fit(model, [part], **options).diagonal for part in parts]
    whole = agop.fit(model, [*reversed(parts)], **options).diagonal
    torch.testing.assert_close(sum(diagonals) / 2, whole, rtol=1e-9, atol=0)


def test_batches_may_be_tuples_lists_or_dicts_and_without_labels():
    images, labels = batches(1)[0]
    expected = agop.fit(zoo.build("plain"), [(images, labels)], progress=False)
    for batch in (
        [images, labels], (images, labels, "more"), {"pixel_values": images, "labels": labels},
        {"image": images, "label": labels},
    ):  # fmt: skip
        prior = agop.fit(zoo.build("plain"), iter([batch]), progress=False)
        assert torch.equal(prior.diagonal, expected.diagonal)
    images = zoo.images(20)
    loader = DataLoader(TensorDataset(images, torch.arange(20) % 3), batch_size=6)
    assert agop.fit(zoo.build("plain"), loader, only_correct=False).count == 20
    assert agop.fit(zoo.build("plain"), images.split(7), only_correct=False, progress=False).count == 20


@pytest.mark.parametrize(
    ("loader", "error", "message"),
    [
        ([], NoSamplesError, "loader is empty"),
        ([{"picture": 1}], InputError, r"\['picture'\].*pixel_values"),
        (["text"], InputError, "a batch is a str"),
        ([zoo.images(2)], InputError, "needs labels"),
        (zoo.images(2), InputError, "loader is a Tensor: wrap it"),
        (TensorDataset(zoo.images(2)), InputError, "loader is a TensorDataset: wrap it"),
        ([(zoo.images(2) / 0, torch.zeros(2).long())], GradientError, "sample 0"),
        ([(torch.zeros(2, 12, 12), torch.zeros(2).long())], InputError, r"\(2, 12, 12\)"),
    ],
)
def test_invalid_loaders_raise(loader, error, message):
    with pytest.raises(error, match=message):
        agop.fit(zoo.build("plain"), loader, only_correct=error is not GradientError)


@pytest.mark.parametrize("only_correct", [True, False])
def test_accuracy_is_the_share_of_correct_samples_whichever_count(only_correct):
    model, images = zoo.build("plain"), zoo.images(20)
    labels = zoo.per_sample_loop(model, images)[1]
    labels[:5] = (labels[:5] + 1) % 3
    prior = agop.fit(model, [(images, labels)], only_correct=only_correct, progress=False)
    assert prior.count == (15 if only_correct else 20)
    assert (prior.provenance.labelled, prior.provenance.correct, prior.provenance.accuracy) == (20, 15, 0.75)
    hook = agop.AGOPTrainingHook(model, only_correct=only_correct)
    hook.step(images, labels)
    assert hook.finalize().provenance.accuracy == 0.75
    without_labels = agop.fit(model, [images], only_correct=False, progress=False).provenance
    assert without_labels.accuracy is None
    assert "correct" not in without_labels.to_dict()


def test_batch_size_bounds_the_passes_for_any_loader():
    """The result is the same, and an error still names the sample in the loader's batch."""

    model, images, labels, rows = zoo.build("plain"), zoo.images(11), torch.arange(11) % 3, []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    whole = agop.fit(model, [(images, labels)], per_class=True, progress=False)
    assert max(rows) == 11
    rows.clear()
    parts = agop.fit(model, [(images, labels)], per_class=True, progress=False, batch_size=4)
    assert max(rows) == 4
    assert torch.equal(parts.class_counts, whole.class_counts)
    torch.testing.assert_close(parts.diagonal, whole.diagonal, rtol=1e-5, atol=0)
    images[9] = torch.nan
    with pytest.raises(GradientError, match="sample 9 of this batch"):
        agop.fit(model, [images], only_correct=False, progress=False, batch_size=4)


def test_snapshots_hold_all_samples_so_far_also_when_the_loader_raises(tmp_path):
    snapshots = []

    def loader():
        yield from zoo.images(12).split(4)
        raise KeyboardInterrupt

    options = {"only_correct": False, "per_class": True, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        agop.fit(zoo.build("plain"), loader(), **options, snapshot=snapshots.append, snapshot_every=0)
    for snapshot, batches_so_far in zip(snapshots, (1, 2, 3, 3), strict=True):  # later batches change none
        expected = agop.fit(zoo.build("plain"), zoo.images(12).split(4)[:batches_so_far], **options)
        assert all(same(getattr(snapshot, name), getattr(expected, name)) for name in ("count", *PARTS))
    expected = agop.fit(zoo.build("plain"), zoo.images(12).split(4), **options, snapshot=snapshots.append)
    assert len(snapshots) == 5  # one more, at the end
    assert torch.equal(snapshots[-1].diagonal, expected.diagonal)
    assert snapshots[-1].provenance == expected.provenance
    (tmp_path / "file").write_text("")
    with pytest.warns(agop.AGOPWarning, match="no snapshot was written: could not write"):
        agop.fit(zoo.build("plain"), [zoo.images()], **options, snapshot=lambda p: p.save(tmp_path / "file" / "deeper"))


def slow_moments(images):
    """Mean and standard deviation (2,C,H,W) in a loop over images: the squared distance from the mean."""
    images = images.double()
    mean = sum(images) / len(images)
    variance = sum((image - mean) ** 2 for image in images) / len(images)
    return torch.stack([mean, variance.sqrt()]).float()


@pytest.mark.parametrize("only_correct", [False, True])
def test_image_moments_are_those_of_a_loop_over_the_counted_images(only_correct):
    model, images, labels = zoo.build("plain").eval(), zoo.images(12), torch.arange(12) % 3
    correct = model(images).argmax(1) == labels
    assert 0 < correct.sum() < 12
    expected = slow_moments(images[correct] if only_correct else images)
    hook = agop.AGOPTrainingHook(model, only_correct=only_correct)
    added = agop.AGOPTrainingHook(model, only_correct=only_correct)
    for part in (slice(0, 5), slice(5, 12)):
        hook.step(images[part], labels[part])
        added.add(agop.input_gradients(model, images[part]), labels[part], images[part])
    batches = [(images[:7], labels[:7]), (images[7:], labels[7:])]
    fitted = agop.fit(model, batches, only_correct, progress=False, batch_size=2)
    for prior in (hook.finalize(), added.finalize(), fitted):
        assert prior.image_moments.dtype == torch.float32
        torch.testing.assert_close(prior.image_moments, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [None, 7])
def test_a_large_offset_keeps_the_standard_deviation_and_a_constant_pixel_has_none(batch_size):
    images = 1e4 + torch.randn(60, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images[:, 0, 0, 0] = 1e4 + 0.1
    moments = agop.fit(zoo.build("plain"), [images], False, progress=False, batch_size=batch_size).image_moments
    torch.testing.assert_close(moments[:, 1:], slow_moments(images)[:, 1:])
    assert moments[0, 0, 0, 0] == images[0, 0, 0, 0]
    assert 0 <= moments[1, 0, 0, 0] < 1e-3


def test_infinite_images_with_finite_gradients_give_no_moments_and_a_file_that_loads(tmp_path):
    images = zoo.images(5)
    images[2, 0, 0, 0] = torch.inf
    model = nn.Sequential(nn.Hardtanh(), nn.Flatten(), nn.Linear(432, 3))
    prior = agop.fit(model, [images], False, progress=False)
    assert prior.count == 5
    prior.save(tmp_path / "prior.safetensors")
    assert agop.AGOP.load(tmp_path / "prior.safetensors").image_moments is None


def test_there_are_no_moments_and_no_patch_matrix_unless_every_sample_has_one():
    model, images = zoo.build("plain"), zoo.images(6)
    for order in ((True, False, True), (False, True)):
        hook = agop.AGOPTrainingHook(model, only_correct=False)
        for complete in order:
            if complete:
                hook.step(images[:3])
            else:
                hook.add(agop.input_gradients(model, images[3:]))
        prior = hook.finalize()
        assert (prior.count, prior.image_moments, prior.patch_matrix, prior.layer) == (3 * len(order), None, None, None)
    with pytest.raises(InputError, match=r"images have shape \(5, 3, 12, 12\), gradients \(6, 3, 12, 12\)"):
        hook.add(agop.input_gradients(model, images), images=images[:5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1}, "rank is -1: give a positive integer, or 0 for no sketch"),
        ({"rank": True}, "rank is True"),
        ({"rank": "64"}, "rank is '64'"),
        ({"nan": "ignore"}, "nan is 'ignore'"),
        ({"output": "odds"}, "no output is named 'odds'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"perclass": True}, "no option is named 'perclass': did you mean 'per_class'"),
        ({"references": 64}, "no option is named 'references'.*known: model, loader, only_correct"),
    ],
)
def test_invalid_and_unknown_options_raise(options, message):
    with pytest.raises(InputError, match=message):
        agop.fit(zoo.build("plain"), [zoo.images()], False, progress=False, **options)
