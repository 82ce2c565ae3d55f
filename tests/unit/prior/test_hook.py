"""The training hook: the paper's Algorithm 1, resuming, snapshots, and errors."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import agop
from agop.errors import AGOPWarning, GradientError, InputError, NoSamplesError
from tests import zoo
from tests.command import wait_until
from tests.state import same
from tests.zoo import algorithm_1, batches


def hook_after(data=(), model=None, only_correct=False, **options):
    """A hook after one step for each batch."""
    hook = agop.AGOPTrainingHook(model or zoo.build("plain"), only_correct, **options)
    for images, labels in data:
        hook.step(images, labels)
    return hook


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
@pytest.mark.parametrize("only_correct", [True, False])
def test_hook_computes_algorithm_1(kind, only_correct):
    model, data = zoo.build(kind), batches()
    expected, count = algorithm_1(model, data, only_correct)
    assert 0 < count <= 48
    hook = hook_after(data, model=model.train(), only_correct=only_correct, per_class=only_correct)
    prior = hook.finalize()
    assert prior.count == hook.count == count
    torch.testing.assert_close(prior.diagonal, expected, rtol=1e-4, atol=1e-9)
    for label in range(3) if only_correct else ():
        of_class = [(images[labels == label], labels[labels == label]) for images, labels in data]
        if prior.class_counts[label]:
            expected, count = algorithm_1(model, of_class, only_correct=True)
            assert prior.class_counts[label] == count
            torch.testing.assert_close(prior.class_diagonals[label], expected, rtol=1e-4, atol=1e-9)


def test_every_k_runs_only_each_kth_batch():
    data = batches(7)
    thinned, plain = hook_after(data, every=3), hook_after(data[::3])
    assert thinned.count == 24
    assert torch.equal(thinned.finalize().diagonal, plain.finalize().diagonal)


@pytest.mark.parametrize("per_class", [False, True])
def test_later_steps_change_no_agop_and_no_state_dict(per_class):
    data = batches(2)
    hook, restored = hook_after(data[:1], per_class=per_class), hook_after(per_class=per_class)
    with pytest.raises(NoSamplesError):
        restored.so_far()
    prior, so_far, state = hook.finalize(), hook.so_far(), hook.state_dict()
    assert torch.equal(so_far.diagonal, prior.diagonal)
    assert torch.equal(hook.diagonal, prior.diagonal)
    assert (so_far.count, so_far.provenance.rank, so_far.provenance.ranks) == (8, 0, 1)
    hook.step(*data[1])
    assert hook.finalize().count == 16
    restored.load_state_dict(state)
    assert restored.count == 8
    for earlier in (prior, so_far):
        assert torch.equal(earlier.diagonal, restored.finalize().diagonal)
        assert not per_class or int(earlier.class_counts.sum()) == 8


@pytest.mark.parametrize("options", [{}, {"every": 2, "per_class": True, "rank": 3}])
def test_a_resumed_hook_gives_the_bitwise_equal_agop(options, tmp_path):
    data = batches(10)
    whole, resumed = hook_after(data, **options), hook_after(**options)
    torch.save(hook_after(data[:5], **options).state_dict(), tmp_path / "hook.pt")
    resumed.load_state_dict(torch.load(tmp_path / "hook.pt", weights_only=True))
    assert resumed.steps == 5
    for batch in data[5:]:
        resumed.step(*batch)
    ours, theirs = resumed.finalize(), whole.finalize()
    assert ours.provenance == theirs.provenance
    assert all(same(getattr(ours, name), getattr(theirs, name)) for name in ("diagonal", "class_diagonals", "sketch"))


TRAINING = """
    import sys, torch, agop
    from tests import zoo
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False, snapshot_every=1, snapshot_dir=sys.argv[1])
    while True:
        hook.step(zoo.images(4))
"""


def test_snapshots_are_complete_during_training_and_after_a_kill(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(TRAINING), str(tmp_path)], env=environment)
    loaded = set()

    def twenty_are_loaded():
        assert process.poll() is None
        for path in set(tmp_path.glob("step-*.safetensors")) - loaded:
            agop.AGOP.load(path)
            loaded.add(path)
        return len(loaded) >= 20

    try:
        wait_until(twenty_are_loaded)
    finally:
        process.kill()
        process.wait()
    for number, path in enumerate(sorted(tmp_path.glob("step-*.safetensors")), start=1):
        assert agop.AGOP.load(path).count == 4 * number


def test_failed_snapshot_warns_and_training_continues(tmp_path):
    (tmp_path / "file").write_text("in the way")
    hook = hook_after(snapshot_every=1, snapshot_dir=tmp_path / "file" / "deeper")
    with pytest.warns(AGOPWarning, match="training continues"):
        hook.step(*batches(1)[0])
    assert hook.finalize().count == 8


def test_invalid_labels_and_images_raise_and_change_nothing():
    images, labels = batches(1)[0]
    hook = hook_after([(images, None)])
    with pytest.raises(InputError, match=r"\(3, 16, 16\)"):
        hook.step(zoo.images(shape=(3, 16, 16)))
    assert hook.finalize().count == 8
    hook = hook_after(only_correct=True)
    for wrong, message in [
        (None, "only_correct=True needs labels"), (torch.tensor([0, 1, 7, 0, 0, 0, 0, 0]), "label 7 of sample 2"),
        (labels[:3], r"\(3,\) for 8"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=message):
            hook.step(images, wrong)
    assert hook.count == 0


class Rooted(torch.nn.Module):
    """Adds √x of one pixel, whose gradient is infinite at 0 and NaN below. The logits stay finite."""

    def __init__(self, below):
        super().__init__()
        self.rest, self.below = zoo.build("plain"), below

    def forward(self, x):
        pixel = x[:, 0, 5, 7]
        # torch.where removes the NaN of a negative root from the logits, but not from the gradient.
        root = torch.where(pixel < 0, 0.0, pixel.sqrt()) if self.below else pixel.sqrt()
        return self.rest(x) + root[:, None]


@pytest.mark.parametrize(
    ("model", "pixel", "value"),
    [
        (zoo.build("plain"), slice(None), torch.nan),
        (zoo.build("plain"), slice(None), torch.inf),
        (Rooted(below=True), (0, 5, 7), -1.0),
        (Rooted(below=False), (0, 5, 7), 0.0),
    ],
    ids=["NaN image", "infinite image", "NaN gradient", "infinite gradient"],
)
def test_non_finite_images_and_gradients_raise_or_are_skipped(model, pixel, value):
    images = zoo.images(6).abs()
    images[4][pixel] = value
    finite = agop.input_gradients(model, images).values[4].isfinite()
    assert not finite[pixel].any()
    assert finite.sum() == (0 if pixel == slice(None) else 431)
    hook = hook_after([(images[:2], None)], model)
    with pytest.raises(
        GradientError, match=r"sample 4 of this batch is NaN or infinite \(1 of 6 samples\).*nan='skip'"
    ):
        hook.step(images)
    assert hook.count == 2
    restored = hook_after(model=model, nan="skip")
    restored.load_state_dict(hook_after([(images, None)], model, nan="skip").state_dict())
    prior = restored.finalize()
    assert (prior.count, prior.provenance.skipped) == (5, 1)
    without = hook_after([(images[[0, 1, 2, 3, 5]], None)], model).finalize()
    for name in ("diagonal", "patch_matrix", "image_moments"):
        torch.testing.assert_close(getattr(prior, name), getattr(without, name))


def test_no_counted_sample_raises_with_the_reason():
    images = zoo.images(6)
    wrong = (zoo.per_sample_loop(zoo.build("plain"), images)[1] + 1) % 3
    for hook, message in [
        (hook_after(), "never called"),
        (hook_after([(images, wrong)], only_correct=True), r"none of 6 .*only_correct=False"),
        (hook_after([(images[:2] * torch.nan, None)], nan="skip"), "2 had NaN"),
    ]:
        with pytest.raises(NoSamplesError, match=message):
            hook.finalize()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"every": 1.5}, "every is 1.5: give a positive integer or 'auto'"),
     ({"every": "always"}, "every is 'always': give a positive integer or 'auto'"),
     ({"snapshot_every": 0}, "snapshot_every"), ({"snapshot_dir": __file__}, "snapshot_dir"), ({"evry": 3}, "evry")],
)  # fmt: skip
def test_invalid_options_raise(options, message):
    with pytest.raises(InputError, match=message):
        hook_after(**options)


def test_invalid_models_and_states_raise():
    with pytest.raises(InputError, match="model is a str"):
        agop.AGOPTrainingHook("resnet18")
    with pytest.raises(InputError, match="isn't the state of a hook"):
        hook_after().load_state_dict(zoo.build("plain").state_dict())
