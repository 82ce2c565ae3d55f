"""An interrupted audit resumes, and gives what an uninterrupted one gives."""

import pytest
import torch
from torch import nn

import agop
from agop.auditing.places import squares
from agop.auditing.stages import Stages, kept_stages
from tests import shortcuts


class Counted(nn.Module):
    """A model that counts its forward passes and is interrupted at one of them."""

    def __init__(self, net):
        super().__init__()
        self.net, self.passes, self.stop = net, 0, None

    def forward(self, images):
        self.passes += 1
        if self.passes == self.stop:
            raise KeyboardInterrupt
        return self.net(images)


@pytest.fixture(scope="module")
def images():
    return shortcuts.drawn(360, 0.7)


@pytest.fixture(scope="module")
def net(images):
    return shortcuts.trained(*images)


def audited(net, images, folder=None, stop=None, **options):
    """The audit, or None if it was interrupted, and the number of forward passes."""
    model = Counted(net).eval()
    model.stop = stop
    try:
        audit = agop.audit(model, *images, per_class=80, progress=False, stages=folder, **options)
    except KeyboardInterrupt:
        return None, model.passes
    return audit, model.passes


@pytest.fixture(scope="module")
def whole(net, images):
    return audited(net, images)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.95])
def test_resumed_audit_equals_the_uninterrupted_one(net, images, whole, tmp_path, share):
    folder, (expected, passes) = tmp_path / "stages", whole
    interrupted, _ = audited(net, images, folder, stop=int(share * passes))
    assert interrupted is None
    assert "prior" in kept_stages(folder)
    resumed, remaining = audited(net, images, folder)
    assert shortcuts.without_times(resumed) == shortcuts.without_times(expected)
    assert torch.equal(resumed.findings[0].maps, expected.findings[0].maps)
    assert remaining < passes
    assert not folder.exists()  # removed at the end


def test_every_stage_is_kept(net, images, whole, tmp_path):
    """The last interruption repeats only what comes after the tests."""
    audited(net, images, tmp_path, stop=whole[1] - 1)
    kept = kept_stages(tmp_path)
    assert kept == "2 × prior, 3 × searching"
    scans = 3 * len(squares((shortcuts.SIDE, shortcuts.SIDE)))  # a pass per square and class, at least
    assert audited(net, images, tmp_path)[1] <= whole[1] - scans


@pytest.mark.slow
@pytest.mark.parametrize("change", ["seed", "weights", "images", "prior"])
def test_stages_of_another_audit_are_not_used(net, images, whole, tmp_path, change):
    audited(net, images, tmp_path, stop=whole[1] - 1)
    folders = set(tmp_path.iterdir())
    pool, labels = images
    if change == "weights":
        net = shortcuts.trained(pool, labels, steps=200)
    if change == "images":
        pool = pool + 0.01
    options = {"seed": 1} if change == "seed" else {}
    if change == "prior":
        batches = zip(pool.split(60), labels.split(60), strict=True)
        options["prior"] = agop.fit(Counted(net).eval(), list(batches), per_class=True, progress=False)
    audited(net, (pool, labels), tmp_path, stop=whole[1] // 2, **options)
    assert len(set(tmp_path.iterdir()) - folders) == 1


@pytest.mark.slow
def test_damaged_or_foreign_stages_are_computed_again(net, images, whole, tmp_path):
    audited(net, images, tmp_path, stop=whole[1] - 1)
    for path in tmp_path.glob("*/prior-0*"):
        path.write_bytes(path.read_bytes()[:100])
    for path in tmp_path.glob("*/searching-0*"):
        path.write_bytes(path.read_bytes()[:100])
    for path in tmp_path.glob("*/searching-1*"):
        torch.save(Foreign(), path)
    resumed = audited(net, images, tmp_path)[0]
    assert shortcuts.without_times(resumed) == shortcuts.without_times(whole[0])


class Foreign:
    """A class that no stage holds: loading it must not run its code."""

    def __reduce__(self):
        return exit, (1,)


def test_other_files_in_the_folder_stay(net, images, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    audited(net, images, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_folder_nothing_is_stored():
    results = iter((1, 2))
    stages = Stages()
    assert [stages.get("searching-0", lambda: next(results)) for _ in range(2)] == [1, 2]
