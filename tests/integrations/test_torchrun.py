"""torchrun: `agop fit` with killed and failing ranks, and the hook in a sharded training."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.bench import CNN8by8
from tests.command import run, wait_until
from tests.integrations.torchrun import finish, start

MODEL = ["agop.bench:CNN8by8", "data", "--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5"]
pytestmark = pytest.mark.slow
OPTIONS = ("--per-class", "--all-samples", "--rank", "3")
SLOW = ("slow:Slow", *MODEL[1:], "--all-samples", "--batch-size", "1")


def start_agop(ranks, *arguments, folder):
    return start(ranks, "-m", "agop", *arguments, folder=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven images of two classes, the weights of a network, and alone.safetensors, written by one process."""
    folder = tmp_path_factory.mktemp("torchrun")
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), folder / "w.pt")
    random = np.random.default_rng(0)
    for index in range(7):
        path = folder / "data" / f"class{index % 2}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    # Slow, so that a rank can be killed while it counts.
    (folder / "slow.py").write_text(
        "import time; from agop.bench.networks import CNN8by8\n"
        "class Slow(CNN8by8):\n    def forward(self, x):\n        time.sleep(0.5); return super().forward(x)\n"
    )
    (folder / "missing.py").write_text(
        "import os; from agop.bench.networks import CNN8by8\n"
        "def model():\n    assert os.environ['RANK'] == '0', 'no such file'\n    return CNN8by8()\n"
    )
    result = run("fit", *MODEL, *OPTIONS, "--out", "alone.safetensors", folder=folder)
    assert result.returncode == 0, result.stderr
    return folder


# Uneven shares; more ranks than images.
@pytest.mark.parametrize("ranks", [2, 9])
def test_fit_on_several_ranks_equals_fit_in_one_process(folder, ranks):
    out = f"of-{ranks}.safetensors"
    result = finish(start_agop(ranks, "fit", *MODEL, *OPTIONS, "--out", out, folder=folder))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("7 of 7 images counted") == result.stdout.count("wrote") == 1
    alone, together = (agop.AGOP.load(folder / name) for name in ("alone.safetensors", out))
    assert together.count == alone.count == 7
    assert together.provenance == alone.provenance
    assert torch.equal(together.class_counts, alone.class_counts)
    torch.testing.assert_close(together.diagonal, alone.diagonal, rtol=1e-6, atol=0)
    torch.testing.assert_close(together.class_diagonals, alone.class_diagonals, rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(together.patch_matrix, alone.patch_matrix, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(together.image_moments, alone.image_moments, rtol=1e-5, atol=1e-6)
    assert 0 < together.residual_share < 1
    below = together.sketch.double().square().sum(0) / together.count
    assert (below <= together.diagonal * (1 + 1e-5)).all()
    assert not list(folder.glob("of-*.part-*"))


def test_a_killed_rank_ends_the_job_and_the_parts_can_be_merged(folder):
    job = start_agop(2, "fit", *SLOW, "--snapshot-every", "0", "--out", "killed.safetensors", folder=folder)
    parts = [folder / f"killed.part-rank{rank}.safetensors" for rank in (0, 1)]
    wait_until(lambda: all(part.exists() for part in parts))
    os.kill(process_of(job, rank=1), signal.SIGKILL)
    stderr = finish(job).stderr
    assert job.returncode != 0
    assert "rank      : 1 (local_rank: 1)" in stderr  # torchrun's report
    assert "the last snapshot is in killed.part-rank0.safetensors" in stderr
    assert not (folder / "killed.safetensors").exists()
    merged = agop.merge([agop.AGOP.load(part) for part in parts])
    assert 2 <= merged.count < 7
    result = run("merge", *parts, "--out", "joined.safetensors", folder=folder)
    assert result.returncode == 0, result.stderr
    assert torch.equal(agop.AGOP.load(folder / "joined.safetensors").diagonal, merged.diagonal)


def test_complete_parts_stay_if_the_result_cannot_be_written(folder):
    """A folder takes the file's name while the ranks count."""
    job = start_agop(2, "fit", *SLOW, "--snapshot-every", "1", "--out", "taken.safetensors", folder=folder)
    parts = [folder / f"taken.part-rank{rank}.safetensors" for rank in (0, 1)]
    wait_until(lambda: any(part.exists() for part in parts))
    (folder / "taken.safetensors").mkdir()
    stderr = finish(job).stderr
    assert job.returncode != 0
    assert "could not write taken.safetensors" in stderr
    result = run("merge", *parts, "--out", "of-parts.safetensors", folder=folder)
    assert result.returncode == 0, result.stderr
    assert agop.AGOP.load(folder / "of-parts.safetensors").count == 7
    assert run("merge", "of-parts.safetensors", parts[0], folder=folder).returncode == 2  # images would count twice


def test_an_error_on_one_rank_ends_the_job(folder):
    result = finish(start_agop(2, "fit", "missing:model", *MODEL[1:], folder=folder))
    assert result.returncode != 0
    assert "error: missing:model raised AssertionError: no such file" in result.stderr
    assert "rank      : 1 (local_rank: 1)" in result.stderr


def test_ranks_with_different_weights_raise(folder):
    """Without --weights each rank draws its own."""
    result = finish(start_agop(2, "fit", MODEL[0], "data", *MODEL[4:], folder=folder))
    assert result.returncode != 0
    assert "error: the ranks have different work (model is {" in result.stderr
    assert "start all of them with the same command, files and weights" in result.stderr


SHARDED = """
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
import agop
from agop.bench import CNN8by8

def train(place):
    torch.manual_seed(0)
    model = fully_shard(CNN8by8())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    hook = agop.AGOPTrainingHook(model, only_correct=False, every="auto")
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(70):
        images, labels = torch.randn(8, 1, 8, 8, generator=random), torch.randint(2, (8,), generator=random)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if place == "before":
            hook.step(images)
        optimizer.step()
        if place == "after":
            hook.step(images)
    return [p.full_tensor().detach().clone() for p in model.parameters()], hook

dist.init_process_group("gloo")
plain, _ = train(None)
for place in ("before", "after"):
    weights, hook = train(place)
    assert all(map(torch.equal, plain, weights)), place
    intervals = [None, None]
    dist.all_gather_object(intervals, hook.state_dict()["pace"]["interval"])
    assert intervals[0] == intervals[1], intervals
    assert hook.finalize().count > 0
unsharded = CNN8by8()
unsharded.load_state_dict(dict(zip(unsharded.state_dict(), weights)))
prior = agop.fit(unsharded, [torch.randn(8, 1, 8, 8)], only_correct=False, progress=False)
assert hook.finalize().provenance.model == prior.provenance.model
try:
    agop.AGOPTrainingHook(FullyShardedDataParallel(CNN8by8(), use_orig_params=True, device_id=torch.device("cpu")))
except agop.AGOPError as error:
    assert "fully_shard" in str(error) and "agop.fit" in str(error), error
else:
    raise AssertionError("FSDP1 was accepted")
dist.barrier()
os._exit(0)  # threads of FSDP may abort while Python exits
"""


def test_fsdp2_trains_as_without_the_hook_and_fsdp1_is_refused(tmp_path):
    (tmp_path / "sharded.py").write_text(SHARDED)
    result = finish(start(2, "sharded.py", folder=tmp_path))
    assert result.returncode == 0, result.stderr


def process_of(job, rank):
    """The process id of a rank."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return next(int(child) for child in children if f"RANK={rank}".encode() in
                Path(f"/proc/{child}/environ").read_bytes().split(b"\0"))  # fmt: skip
