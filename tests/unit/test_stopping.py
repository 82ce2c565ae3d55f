"""Ctrl-C as a terminal sends it: a real signal to a real command and all its processes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.networks import CNN8by8

pytestmark = pytest.mark.slow
LIMIT = 120
HOW = ("--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--batch-size", "1")
BENCH = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "4", "--method", "vanilla",
         "--metric", "energy", "--jobs", "2", "--out", "run")  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Pictures with masks, weights, and a network that takes its time and says when it is first asked."""
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), tmp_path / "w.pt")
    random = np.random.default_rng(0)
    for index in range(40):
        for kind in ("data", "masks"):
            place = tmp_path / kind / f"class{index % 2}" / f"{index}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(place)
    (tmp_path / "slow.py").write_text(
        "import time; from pathlib import Path; from agop.networks import CNN8by8\n"
        "class Slow(CNN8by8):\n"
        "    def forward(self, x):\n"
        "        Path('asked').touch(); time.sleep(0.2); return super().forward(x)\n"
    )
    return tmp_path


def stopped(*arguments, folder, when, command=(sys.executable, "-m", "agop")):
    """What a command says on standard error, stopped as soon as files of these patterns are there."""
    process = subprocess.Popen(
        [*command, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env=os.environ | {"COLUMNS": "200", "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and not all(list(folder.glob(each)) for each in when.split()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    said, told = process.communicate(timeout=LIMIT)
    assert said == ""
    return process.returncode, told


def test_fit_says_that_nothing_was_written(folder):
    code, told = stopped("fit", "slow:Slow", "data", *HOW, "--all-samples", folder=folder, when="asked")
    assert (code, told) == (130, "stopped: nothing was written to prior.safetensors\n")
    assert not list(folder.glob("*.safetensors"))


def test_fit_with_snapshots_says_where_the_last_one_is(folder):
    part = "prior.part-rank0.safetensors"
    code, told = stopped(
        "fit", "slow:Slow", "data", *HOW, "--all-samples", "--snapshot-every", "0", folder=folder, when=part
    )
    assert (code, told) == (130, f"stopped: what was counted so far is in {part}\n")
    assert 0 < agop.AGOP.load(folder / part).count < 40


def test_explain_says_what_is_there(folder):
    code, told = stopped("explain", "slow:Slow", "data", *HOW, folder=folder, when="explanations/*/*.png")
    assert code == 130
    assert told == "stopped: pictures that are done stay in explanations/, without maps.safetensors and manifest.json\n"
    assert not (folder / "explanations" / "manifest.json").exists()


def test_evaluate_says_that_nothing_was_written(folder):
    code, told = stopped(
        "evaluate", "slow:Slow", "data", "masks", *HOW, "--method", "vanilla", "--threshold", "99",
        folder=folder, when="asked",
    )  # fmt: skip
    assert (code, told) == (130, "stopped: no scores were written to runs/evaluation\n")
    assert not (folder / "runs").exists()


def test_bench_says_that_it_can_go_on(tmp_path):
    code, told = stopped(*BENCH, folder=tmp_path, when="run/cells/.*part")
    assert (code, told) == (130, "stopped: finished cells stay in run: run again (without --fresh) to resume\n")
    code, told = stopped(*BENCH, "--fresh", "--out", "new", folder=tmp_path, when="new/cells/.*part")
    assert told == "stopped: finished cells stay in new: run again (without --fresh) to resume\n"


def test_each_rank_says_where_its_part_is(folder):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agop")
    code, told = stopped(
        "fit", "slow:Slow", "data", *HOW, "--all-samples", "--snapshot-every", "0",
        folder=folder, when="prior.part-rank0.* prior.part-rank1.*", command=launcher,
    )  # fmt: skip
    assert code != 0
    for rank in (0, 1):
        assert f"stopped: what was counted so far is in prior.part-rank{rank}.safetensors\n" in told
