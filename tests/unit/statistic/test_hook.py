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


def batches(count=6, size=8, seed=5):
    random = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 3, 12, 12, generator=random), torch.randint(0, 3, (size,), generator=random))
        for _ in range(count)
    ]


def algorithm_1(model, data, only_correct):
    """The paper's algorithm, to the letter: diag(M) and how many samples it averages."""
    total, count = torch.zeros(3, 12, 12, dtype=torch.float64), 0
    for images, labels in data:
        gradients, classes = zoo.per_sample_loop(model, images)
        for g, predicted, label in zip(gradients, classes, labels, strict=True):
            if only_correct and predicted != label:
                continue
            total += g.double() ** 2
            count += 1
    return total / count, count


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
@pytest.mark.parametrize("only_correct", [True, False])
def test_the_hook_computes_algorithm_1(kind, only_correct):
    model, data = zoo.build(kind), batches()
    expected, count = algorithm_1(model, data, only_correct)
    assert 0 < count <= 48
    hook = agop.AGOPTrainingHook(model.train(), only_correct=only_correct)
    for images, labels in data:
        hook.step(images, labels)
    prior = hook.finalize()
    assert prior.count == hook.count == count
    torch.testing.assert_close(prior.diagonal, expected, rtol=1e-4, atol=1e-9)


def test_per_class():
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


def test_every_thins_the_passes():
    data = batches(7)
    thinned, chosen = (agop.AGOPTrainingHook(zoo.build("plain"), False, every=n) for n in (3, 1))
    for images, labels in data:
        thinned.step(images, labels)
    for index in (0, 3, 6):
        chosen.step(*data[index])
    assert thinned.count == 24
    assert torch.equal(thinned.finalize().diagonal, chosen.finalize().diagonal)


def test_gradient_accumulation_is_only_more_calls():
    """Micro-batches count as their batch does."""
    images, labels = batches(1, 12)[0]
    whole, parts = (agop.AGOPTrainingHook(zoo.build("plain")) for _ in range(2))
    whole.step(images, labels)
    for rows in torch.arange(12).split(5):
        parts.step(images[rows], labels[rows])
    assert whole.count == parts.count
    torch.testing.assert_close(parts.finalize().diagonal, whole.finalize().diagonal)


def test_finalize_does_not_end_it():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    data = batches(2)
    hook.step(*data[0])
    first = hook.finalize()
    kept = first.diagonal.clone()
    hook.step(*data[1])
    assert torch.equal(first.diagonal, kept)
    assert hook.finalize().count == 16


def train(hook_options, steps, folder=None, resume=None):
    """A training run of BatchNorm, dropout and Adam, which can be cut and taken up again."""
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
def test_a_resumed_training_gives_the_statistic_of_an_uninterrupted_one(options, tmp_path):
    _, _, whole = train(options, 10)
    model, optimizer, hook = train(options, 5)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hook": hook.state_dict(),
             "random": torch.get_rng_state()}  # fmt: skip
    torch.save(saved, tmp_path / "checkpoint.pt")
    _, _, resumed = train(options, 10, resume=tmp_path / "checkpoint.pt")
    assert resumed.steps == whole.steps == 10
    assert resumed.count == whole.count
    assert torch.equal(resumed.finalize().diagonal, whole.finalize().diagonal)


def test_the_saved_state_does_not_move_with_the_hook():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    data = batches(2)
    hook.step(*data[0])
    state = hook.state_dict()
    hook.step(*data[1])
    again = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    again.load_state_dict(state)
    assert again.count == 8


def test_state_of_other_options_is_refused():
    state = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False).state_dict()
    with pytest.raises(InputError, match=r"only_correct.*False"):
        agop.AGOPTrainingHook(zoo.build("plain")).load_state_dict(state)


def test_snapshots(tmp_path):
    _, _, hook = train({}, 7, folder=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{step:08d}.safetensors" for step in (2, 4, 6)]
    counts = [agop.AGOP.load(tmp_path / name).count for name in names]
    assert counts == sorted(counts)
    assert agop.AGOP.load(tmp_path / names[-1]).provenance.steps == 6
    assert hook.finalize().provenance.steps == 7


def test_snapshots_by_default_every_100_steps_and_none_without_a_folder(tmp_path):
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


def test_snapshots_are_whole_while_training_goes_on_and_after_a_kill(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TRAINING), str(tmp_path)], env=os.environ | {"PYTHONPATH": os.getcwd()}
    )
    try:
        read, deadline = set(), time.monotonic() + 60
        while len(read) < 50:
            assert time.monotonic() < deadline
            assert process.poll() is None
            for path in set(tmp_path.glob("step-*.safetensors")) - read:
                agop.AGOP.load(path)
                read.add(path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    snapshots = sorted(tmp_path.glob("step-*.safetensors"))
    for number, path in enumerate(snapshots, start=1):
        assert agop.AGOP.load(path).count == 4 * number


def test_a_snapshot_that_cannot_be_written_does_not_end_the_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    hook = agop.AGOPTrainingHook(zoo.build("plain"), False, snapshot_every=1, snapshot_dir=tmp_path / "file" / "deeper")
    with pytest.warns(AGOPWarning, match="training goes on"):
        hook.step(*batches(1)[0])
    assert hook.finalize().count == 8


def test_labels_are_needed_and_checked():
    hook, (images, labels) = agop.AGOPTrainingHook(zoo.build("plain")), batches(1)[0]
    with pytest.raises(InputError, match="only_correct=True needs labels"):
        hook.step(images)
    with pytest.raises(InputError, match="label 7 of sample 2"):
        hook.step(images, torch.tensor([0, 1, 7, 0, 0, 0, 0, 0]))
    with pytest.raises(InputError, match=r"\(3,\) for 8"):
        hook.step(images, labels[:3])
    assert hook.count == 0
    agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False).step(images)


def test_images_of_another_shape_than_before():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images())
    with pytest.raises(InputError, match=r"\(3, 16, 16\)"):
        hook.step(zoo.images(shape=(3, 16, 16)))
    assert hook.finalize().count == 5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite(bad):
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
    """Takes √x of one pixel, whose gradient is infinite at 0 and NaN below; the logits stay finite."""

    def __init__(self, below):
        super().__init__()
        self.rest, self.below = zoo.build("plain"), below

    def forward(self, x):
        pixel = x[:, 0, 5, 7]
        # torch.where drops the NaN of a negative root from the logits, but not from the gradient.
        root = torch.where(pixel < 0, 0.0, pixel.sqrt()) if self.below else pixel.sqrt()
        return self.rest(x) + root[:, None]


@pytest.mark.parametrize("below", [True, False], ids=["NaN", "infinite"])
def test_a_gradient_that_is_not_finite_at_one_pixel_only(below):
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
    skipping, kept = (agop.AGOPTrainingHook(model, only_correct=False, nan="skip") for _ in range(2))
    skipping.step(images)
    kept.step(images[others])
    prior = skipping.finalize()
    assert (prior.count, prior.provenance.skipped) == (5, 1)
    torch.testing.assert_close(prior.diagonal, kept.finalize().diagonal)


def test_no_sample_counted_is_an_error_that_says_why():
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
def test_options_that_make_no_sense(options):
    with pytest.raises(InputError, match=next(iter(options))):
        agop.AGOPTrainingHook(zoo.build("plain"), **options)


def test_states_and_models_that_are_none():
    with pytest.raises(InputError, match="model is a str"):
        agop.AGOPTrainingHook("resnet18")
    with pytest.raises(InputError, match="no state of a hook"):
        agop.AGOPTrainingHook(zoo.build("plain")).load_state_dict(zoo.build("plain").state_dict())


def test_the_hook_keeps_no_more_after_many_steps():
    hook, kept = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False), set()
    for _ in range(30):
        hook.step(zoo.images(3))
        kept.add(sum(t.nbytes for t in hook.state_dict()["sums"].values() if isinstance(t, torch.Tensor)))
    assert kept == {3 * 12 * 12 * 8 + 8}


def test_what_was_collected_so_far_is_there_without_an_end():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    with pytest.raises(NoSamplesError):
        hook.so_far()
    hook.step(*batches(1)[0])
    prior, so_far = hook.finalize(), hook.so_far()
    assert torch.equal(so_far.diagonal, prior.diagonal)
    assert torch.equal(hook.diagonal, prior.diagonal)
    assert (so_far.count, so_far.provenance.rank, so_far.provenance.ranks) == (8, 0, 1)
