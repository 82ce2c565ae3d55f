"""Jobs of several ranks as a person starts them: real torchrun, real kills."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.errors import RankError
from agop.networks import CNN8by8

pytestmark = pytest.mark.slow
LIMIT = 120
MODEL = ("agop.networks:CNN8by8", "data", "--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
OPTIONS = ("--per-class", "--all-samples")
BENCH = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "1", "--method", "vanilla",
         "--method", "agop-global", "--metric", "energy")  # fmt: skip


def torchrun(ranks, *arguments):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, "-m", "agop", *map(str, arguments)]


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "200"}


def run(command, folder):
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT
    )


def started(folder, *arguments):
    """A job of two ranks at work."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(torchrun(2, *arguments), cwd=folder, env=environment(), text=True, **pipes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven pictures of two classes, a network's weights, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("torchrun")
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), folder / "w.pt")
    random = np.random.default_rng(0)
    for index in range(7):
        place = folder / "data" / f"class{index % 2}" / f"{index}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(place)
    # A network that takes its time, so that a rank can be killed while it counts.
    (folder / "slow.py").write_text(
        "import time; from agop.networks import CNN8by8\n"
        "class Slow(CNN8by8):\n    def forward(self, x):\n        time.sleep(0.5); return super().forward(x)\n"
    )
    # A network that is there on rank 0 only.
    (folder / "missing.py").write_text(
        "import os; from agop.networks import CNN8by8\n"
        "def model():\n    assert os.environ['RANK'] == '0', 'no such file'\n    return CNN8by8()\n"
    )
    done = run([sys.executable, "-m", "agop", "fit", *MODEL, *OPTIONS, "--out", "alone.safetensors"], folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("ranks", [2, 9])  # uneven shares; more ranks than pictures
def test_fit_of_several_ranks_is_fit_of_one(folder, ranks):
    out = f"of-{ranks}.safetensors"
    done = run(torchrun(ranks, "fit", *MODEL, *OPTIONS, "--out", out), folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("7 of 7 pictures counted") == done.stdout.count("wrote") == 1
    alone, together = (agop.AGOP.load(folder / name) for name in ("alone.safetensors", out))
    assert together.count == alone.count == 7
    assert together.provenance == alone.provenance
    assert torch.equal(together.class_counts, alone.class_counts)
    torch.testing.assert_close(together.diagonal, alone.diagonal, rtol=1e-6, atol=0)
    torch.testing.assert_close(together.class_diagonals, alone.class_diagonals, rtol=1e-6, atol=0, equal_nan=True)
    assert not list(folder.glob("of-*.part-*"))


def test_a_killed_rank_ends_the_job_and_the_parts_can_be_merged(folder):
    slow = ("slow:Slow", *MODEL[1:], "--all-samples", "--batch-size", "1", "--snapshot-every", "0")
    job = started(folder, "fit", *slow, "--out", "killed.safetensors")
    parts = [folder / f"killed.part-rank{rank}.safetensors" for rank in (0, 1)]
    wait_until(lambda: all(part.exists() for part in parts))
    os.kill(process_of(job, rank=1), signal.SIGKILL)
    told = job.communicate(timeout=LIMIT)[1]
    assert job.returncode != 0
    assert "error: rank 1 of 2 ended early: it was killed" in told
    assert "what was counted so far is in killed.part-rank0.safetensors" in told
    assert not (folder / "killed.safetensors").exists()
    merged = agop.merge([agop.AGOP.load(part) for part in parts])
    assert 2 <= merged.count < 7
    done = run([sys.executable, "-m", "agop", "merge", *parts, "--out", "joined.safetensors"], folder)
    assert done.returncode == 0, done.stderr
    assert torch.equal(agop.AGOP.load(folder / "joined.safetensors").diagonal, merged.diagonal)


def test_a_result_that_cannot_be_written_leaves_the_whole_parts(folder):
    """The file's name is taken while the ranks count."""
    slow = ("slow:Slow", *MODEL[1:], "--all-samples", "--batch-size", "1", "--snapshot-every", "1")
    job = started(folder, "fit", *slow, "--out", "taken.safetensors")
    parts = [folder / f"taken.part-rank{rank}.safetensors" for rank in (0, 1)]
    wait_until(lambda: any(part.exists() for part in parts))
    (folder / "taken.safetensors").mkdir()
    told = job.communicate(timeout=LIMIT)[1]
    assert job.returncode != 0
    assert "could not write taken.safetensors" in told
    done = run([sys.executable, "-m", "agop", "merge", *parts, "--out", "of-parts.safetensors"], folder)
    assert done.returncode == 0, done.stderr
    assert agop.AGOP.load(folder / "of-parts.safetensors").count == 7
    done = run([sys.executable, "-m", "agop", "merge", "of-parts.safetensors", parts[0]], folder)
    assert "hold the same images, which would count twice" in done.stderr


def test_an_error_on_one_rank_is_told_by_the_other(folder):
    done = run(torchrun(2, "fit", "missing:model", *MODEL[1:]), folder)
    assert done.returncode != 0
    assert "error: missing:model raised AssertionError: no such file" in done.stderr
    assert "error: rank 1 of 2 ended early: ModelError: missing:model raised AssertionError" in done.stderr


def test_ranks_with_different_weights_are_refused(folder):
    """Without --weights each rank would make up its own."""
    done = run(torchrun(2, "fit", MODEL[0], "data", *MODEL[4:]), folder)
    assert done.returncode != 0
    assert "error: rank 1 of 2 has other work than rank 0 (model {" in done.stderr


def test_bench_of_several_ranks_is_bench_of_one(tmp_path):
    alone = run([sys.executable, "-m", "agop", *BENCH, "--jobs", "1", "--out", "alone"], tmp_path)
    assert alone.returncode == 0, alone.stderr
    done = run(torchrun(3, *BENCH, "--out", "together"), tmp_path)  # two cells: one rank has none
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The paper's claims") == 1
    ours, theirs = ({str(p.relative_to(tmp_path / name)): p for p in (tmp_path / name).rglob("*") if p.is_file()}
                    for name in ("together", "alone"))  # fmt: skip
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"about.json"}:
        if "timings" not in name:
            assert ours[name].read_bytes() == theirs[name].read_bytes(), name
    about, other = (json.loads(found["about.json"].read_text()) for found in (ours, theirs))
    assert about.pop("command").startswith("agop bench xai-tris --quick")
    assert about.items() <= other.items()


def test_a_killed_rank_of_a_bench_leaves_its_cells_and_the_next_run_goes_on(tmp_path):
    options = ("bench", "xai-tris", "--quick", "--scenario", "linear", *BENCH[7:], "--seeds", "4", "--out", "run")
    job = subprocess.Popen(torchrun(2, *options), cwd=tmp_path, env=environment(), text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    wait_until((tmp_path / "run" / "spec.json").exists)
    time.sleep(1)
    os.kill(process_of(job, rank=1), signal.SIGKILL)
    told = job.communicate(timeout=LIMIT)[1]
    assert job.returncode != 0
    assert "error: rank 1 of 2 ended early" in told
    assert "run again to go on" in told
    done = run([sys.executable, "-m", "agop", *options], tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "run" / "cells").glob(".*.part"))


RANK = """
import os, signal, torch
from agop.system.distributed import cores_here, ranks
with ranks(patience=3) as here:
    if here.first:
        print("threads", torch.get_num_threads() == cores_here())
    if here.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    here.meet()
"""


def test_a_rank_that_hangs_is_noticed_by_its_silence(tmp_path):
    """A stopped process ends nothing: its connections stay, and torchrun sees it run."""
    (tmp_path / "stopped.py").write_text(RANK)
    command = torchrun(2)[:-2]
    done = run([*command, "stopped.py"], tmp_path)
    told = done.stderr
    assert done.returncode != 0
    assert done.stdout == "threads True\n"
    assert f"{RankError.__name__}: rank 1 of 2 ended early: no sign of it for 3 seconds" in told


def wait_until(true):
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def process_of(job, rank):
    """The process id of a rank."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return next(int(child) for child in children if f"RANK={rank}".encode() in
                Path(f"/proc/{child}/environ").read_bytes().split(b"\0"))  # fmt: skip
