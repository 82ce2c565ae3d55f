import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from torch import nn

import agop
from agop.errors import AGOPWarning, GradientError, InputError, NoSamplesError
from tests import zoo
from tests.training import algorithm_1, batches


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
@pytest.mark.parametrize("only_correct", [True, False])
def test_hook_computes_algorithm_1(kind, only_correct):
    model, data = zoo.build(kind), batches()
    expected, count = algorithm_1(model, data, only_correct)
    assert 0 < count <= 48
    hook = agop.AGOPTrainingHook(model.train(), only_correct=only_correct)
    for images, labels in data:
        hook.step(images, labels)
    prior = hook.finalize()
    assert prior.count == hook.count == count
    torch.testing.assert_close(prior.diagonal, expected, rtol=1e-4, atol=1e-9)


def test_per_class_diagonals_equal_algorithm_1_per_class():
    model, data = zoo.build("plain"), batches()
    hook = agop.AGOPTrainingHook(model, per_class=True)
    for images, labels in data:
        hook.step(images, labels)
    prior = hook.finalize()
    for label in range(3):
        of_class = [(images[labels == label], labels[labels == label]) for images, labels in data]
        if prior.class_counts[label]:
            expected, count = algorithm_1(model, of_class, only_correct=True)
            assert prior.class_counts[label] == count
            torch.testing.assert_close(prior.class_diagonals[label], expected, rtol=1e-4, atol=1e-9)


def test_every_k_runs_only_each_kth_batch():
    data = batches(7)
    thinned, plain = (agop.AGOPTrainingHook(zoo.build("plain"), False, every=n) for n in (3, 1))
    for images, labels in data:
        thinned.step(images, labels)
    for index in (0, 3, 6):
        plain.step(*data[index])
    assert thinned.count == 24
    assert torch.equal(thinned.finalize().diagonal, plain.finalize().diagonal)


def test_micro_batches_give_the_same_as_their_batch():
    images, labels = batches(1, 12)[0]
    whole, parts = (agop.AGOPTrainingHook(zoo.build("plain")) for _ in range(2))
    whole.step(images, labels)
    for rows in torch.arange(12).split(5):
        parts.step(images[rows], labels[rows])
    assert whole.count == parts.count
    torch.testing.assert_close(parts.finalize().diagonal, whole.finalize().diagonal)


def test_steps_may_follow_finalize():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    data = batches(2)
    hook.step(*data[0])
    first = hook.finalize()
    before = first.diagonal.clone()
    hook.step(*data[1])
    assert torch.equal(first.diagonal, before)
    assert hook.finalize().count == 16


def train(hook_options, steps, folder=None, resume=None):
    """A training with batch norm, dropout and Adam, optionally resumed from a checkpoint."""
    torch.manual_seed(0)
    model = zoo.batch_normed().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hook = agop.AGOPTrainingHook(model, snapshot_every=2, snapshot_dir=folder, **hook_options)
    start = 0
    if resume is not None:
        saved = torch.load(resume, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        hook.load_state_dict(saved["hook"])
        torch.set_rng_state(saved["random"])
        start = hook.steps
    for images, labels in batches(10)[start:steps]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        hook.step(images, labels)
    return model, optimizer, hook


@pytest.mark.parametrize("options", [{}, {"every": 2, "per_class": True}])
def test_resumed_training_gives_the_bitwise_equal_agop(options, tmp_path):
    _, _, whole = train(options, 10)
    model, optimizer, hook = train(options, 5)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hook": hook.state_dict(),
             "random": torch.get_rng_state()}  # fmt: skip
    torch.save(saved, tmp_path / "checkpoint.pt")
    _, _, resumed = train(options, 10, resume=tmp_path / "checkpoint.pt")
    assert resumed.steps == whole.steps == 10
    assert resumed.count == whole.count
    assert torch.equal(resumed.finalize().diagonal, whole.finalize().diagonal)


def test_state_dict_does_not_change_with_later_steps():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    data = batches(2)
    hook.step(*data[0])
    state = hook.state_dict()
    hook.step(*data[1])
    restored = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    restored.load_state_dict(state)
    assert restored.count == 8


def test_state_with_other_options_raises():
    state = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False).state_dict()
    with pytest.raises(InputError, match=r"only_correct.*False"):
        agop.AGOPTrainingHook(zoo.build("plain")).load_state_dict(state)


def test_snapshots_are_written_every_n_steps(tmp_path):
    _, _, hook = train({}, 7, folder=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{step:08d}.safetensors" for step in (2, 4, 6)]
    counts = [agop.AGOP.load(tmp_path / name).count for name in names]
    assert counts == sorted(counts)
    assert agop.AGOP.load(tmp_path / names[-1]).provenance.steps == 6
    assert hook.finalize().provenance.steps == 7


def test_snapshots_default_to_every_100_steps(tmp_path):
    model, (images, labels) = zoo.build("plain"), batches(1, 1)[0]
    hook = agop.AGOPTrainingHook(model, only_correct=False, snapshot_dir=tmp_path)
    for _ in range(201):
        hook.step(images, labels)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"step-00000{n}00.safetensors" for n in (1, 2)]


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
    try:
        loaded, deadline = set(), time.monotonic() + 60
        while len(loaded) < 20:
            assert time.monotonic() < deadline
            assert process.poll() is None
            for path in set(tmp_path.glob("step-*.safetensors")) - loaded:
                agop.AGOP.load(path)
                loaded.add(path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    snapshots = sorted(tmp_path.glob("step-*.safetensors"))
    for number, path in enumerate(snapshots, start=1):
        assert agop.AGOP.load(path).count == 4 * number


def test_failed_snapshot_warns_and_training_continues(tmp_path):
    (tmp_path / "file").write_text("in the way")
    hook = agop.AGOPTrainingHook(zoo.build("plain"), False, snapshot_every=1, snapshot_dir=tmp_path / "file" / "deeper")
    with pytest.warns(AGOPWarning, match="training continues"):
        hook.step(*batches(1)[0])
    assert hook.finalize().count == 8


def test_missing_and_invalid_labels_raise():
    hook, (images, labels) = agop.AGOPTrainingHook(zoo.build("plain")), batches(1)[0]
    with pytest.raises(InputError, match="only_correct=True needs labels"):
        hook.step(images)
    with pytest.raises(InputError, match="label 7 of sample 2"):
        hook.step(images, torch.tensor([0, 1, 7, 0, 0, 0, 0, 0]))
    with pytest.raises(InputError, match=r"\(3,\) for 8"):
        hook.step(images, labels[:3])
    assert hook.count == 0
    agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False).step(images)


def test_images_of_another_shape_raise_and_change_nothing():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images())
    with pytest.raises(InputError, match=r"\(3, 16, 16\)"):
        hook.step(zoo.images(shape=(3, 16, 16)))
    assert hook.finalize().count == 5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_images_raise_or_are_skipped(bad):
    images = zoo.images(6)
    images[4] = bad
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images(2))
    with pytest.raises(GradientError, match=r"sample 4 .*nan='skip'"):
        hook.step(images)
    assert hook.count == 2
    skipping = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False, nan="skip")
    skipping.step(images)
    prior = skipping.finalize()
    assert prior.count == 5
    assert prior.provenance.skipped == 1
    assert prior.diagonal.isfinite().all()


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


@pytest.mark.parametrize("below", [True, False], ids=["NaN", "infinite"])
def test_gradient_that_is_not_finite_at_one_pixel_raises_or_is_skipped(below):
    images = zoo.images(6).abs()
    images[4, 0, 5, 7] = -1.0 if below else 0.0
    model = Rooted(below)
    gradient = agop.input_gradients(model, images).values[4]
    assert (gradient[0, 5, 7].isnan() if below else gradient[0, 5, 7].isinf()).item()
    assert (~gradient.isfinite()).sum() == 1
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    with pytest.raises(GradientError, match=r"sample 4 of this batch is NaN or infinite \(1 of 6 samples\)"):
        hook.step(images)
    assert hook.count == 0
    others = [0, 1, 2, 3, 5]
    skipping, without = (agop.AGOPTrainingHook(model, only_correct=False, nan="skip") for _ in range(2))
    skipping.step(images)
    without.step(images[others])
    prior = skipping.finalize()
    assert (prior.count, prior.provenance.skipped) == (5, 1)
    torch.testing.assert_close(prior.diagonal, without.finalize().diagonal)


def test_no_counted_sample_raises_with_the_reason():
    hook = agop.AGOPTrainingHook(zoo.build("plain"))
    with pytest.raises(NoSamplesError, match="never called"):
        hook.finalize()
    images = zoo.images(6)
    _, classes = zoo.per_sample_loop(zoo.build("plain"), images)
    hook.step(images, (classes + 1) % 3)
    with pytest.raises(NoSamplesError, match=r"none of 6 .*only_correct=False"):
        hook.finalize()
    skipping = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False, nan="skip")
    skipping.step(torch.full((2, 3, 12, 12), torch.nan))
    with pytest.raises(NoSamplesError, match="2 had NaN"):
        skipping.finalize()


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"every": 1.5}, {"snapshot_every": 0}, {"nan": "ignore"}, {"snapshot_dir": __file__}]
)
def test_invalid_options_raise(options):
    with pytest.raises(InputError, match=next(iter(options))):
        agop.AGOPTrainingHook(zoo.build("plain"), **options)


def test_invalid_models_and_states_raise():
    with pytest.raises(InputError, match="model is a str"):
        agop.AGOPTrainingHook("resnet18")
    with pytest.raises(InputError, match="isn't the state of a hook"):
        agop.AGOPTrainingHook(zoo.build("plain")).load_state_dict(zoo.build("plain").state_dict())


def test_state_does_not_grow_with_steps():
    hook, sizes = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False), set()
    for _ in range(30):
        hook.step(zoo.images(3))
        sizes.add(sum(t.nbytes for t in hook.state_dict()["sums"].values() if isinstance(t, torch.Tensor)))
    assert sizes == {3 * 12 * 12 * 8 + 8}


def test_so_far_equals_finalize_on_one_process():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    with pytest.raises(NoSamplesError):
        hook.so_far()
    hook.step(*batches(1)[0])
    prior, so_far = hook.finalize(), hook.so_far()
    assert torch.equal(so_far.diagonal, prior.diagonal)
    assert torch.equal(hook.diagonal, prior.diagonal)
    assert (so_far.count, so_far.provenance.rank, so_far.provenance.ranks) == (8, 0, 1)
