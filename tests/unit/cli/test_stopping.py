"""Ctrl-C and SIGTERM: commands end with one line that says what is kept."""

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
from agop.cli.stopping import deferred_signals, sigterm_as_interrupt
from agop.networks import CNN8by8
from tests.command import run

LIMIT = 120
SIGNALS = [signal.SIGINT, signal.SIGTERM]
HOW = ("--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--batch-size", "1")
BENCH = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "4", "--method", "vanilla",
         "--metric", "energy", "--jobs", "2", "--out", "run")  # fmt: skip
NETWORKS = """
import os, signal, time
from pathlib import Path
from agop.networks import CNN8by8

class Stopped(CNN8by8):
    '''Sends its own process the signal when it is called for the sixth time.'''
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls == 6:
            signal.raise_signal(int(os.environ["SIGNAL"]))
        return super().forward(x)

class Slow(CNN8by8):
    def forward(self, x):
        Path("called").touch()
        time.sleep(0.2)
        return super().forward(x)
"""


@pytest.fixture
def folder(tmp_path):
    """Images with masks, weights, and networks that can be stopped."""
    torch.manual_seed(0)
    torch.save(CNN8by8().state_dict(), tmp_path / "w.pt")
    random = np.random.default_rng(0)
    for index in range(40):
        for kind in ("data", "masks"):
            path = tmp_path / kind / f"class{index % 2}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    (tmp_path / "networks.py").write_text(NETWORKS)
    return tmp_path


def run_stopped(command, *arguments, folder, number):
    """Standard error of a command that gets a signal while its network computes."""
    result = run(command, "networks:Stopped", *arguments, *HOW, folder=folder, SIGNAL=str(int(number)))
    assert result.returncode == 130
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_fit_says_that_nothing_was_written(folder, number):
    stderr = run_stopped("fit", "data", "--all-samples", folder=folder, number=number)
    assert stderr.strip() == "stopped: nothing was written to prior.safetensors"
    assert not list(folder.glob("*.safetensors"))


@pytest.mark.parametrize("number", SIGNALS)
def test_fit_says_where_the_last_snapshot_is(folder, number):
    part = "prior.part-rank0.safetensors"
    stderr = run_stopped("fit", "data", "--all-samples", "--snapshot-every", "0", folder=folder, number=number)
    assert stderr.strip() == f"stopped: the last snapshot is in {part}"
    assert 0 < agop.AGOP.load(folder / part).count < 40


def test_fit_mentions_the_last_snapshot_in_errors(folder):
    (folder / "networks.py").write_text(NETWORKS.replace("signal.raise_signal(", "x = x * float('nan') + 0 * ("))
    result = run("fit", "networks:Stopped", "data", "--all-samples", "--snapshot-every", "0", *HOW,
               folder=folder, SIGNAL="0")  # fmt: skip
    assert result.returncode == 2
    assert "NaN" in result.stderr
    assert "; the last snapshot is in prior.part-rank0.safetensors" in result.stderr


def test_explain_says_which_files_are_kept(folder):
    stderr = run_stopped("explain", "data", folder=folder, number=signal.SIGINT)
    assert stderr.strip() == (
        "stopped: finished images stay in explanations/, without maps.safetensors and manifest.json"
    )
    assert not (folder / "explanations" / "manifest.json").exists()


def test_evaluate_says_that_nothing_was_written(folder):
    stderr = run_stopped(
        "evaluate", "data", "masks", "--method", "vanilla", "--threshold", "99", folder=folder, number=signal.SIGINT
    )
    assert stderr.strip() == "stopped: no scores were written to runs/evaluation"
    assert not (folder / "runs").exists()


def test_the_first_sigterm_interrupts_and_the_old_handler_returns_after_errors():
    handler = signal.getsignal(signal.SIGTERM)
    with sigterm_as_interrupt():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == handler
    with pytest.raises(ValueError, match="mine"), sigterm_as_interrupt():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.parametrize("number", SIGNALS)
def test_deferred_signals_arrive_after_the_block(number):
    deferred = deferred_signals()
    with sigterm_as_interrupt():
        deferred.__enter__()
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            deferred.__exit__(None, None, None)
    with deferred_signals():
        pass


def stop_process(*arguments, folder, when, command=(sys.executable, "-m", "agop")):
    """Exit code and standard error after Ctrl-C, sent to all processes once files of these patterns exist."""
    process = subprocess.Popen(
        [*command, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env=os.environ | {"COLUMNS": "200", "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and not all(list(folder.glob(pattern)) for pattern in when.split()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=LIMIT)
    assert stdout == ""
    return process.returncode, stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_real_process(folder):
    code, stderr = stop_process("fit", "networks:Slow", "data", *HOW, "--all-samples", folder=folder, when="called")
    assert code == 130
    assert "stopped: nothing was written to prior.safetensors" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_bench_says_how_to_resume(tmp_path):
    code, stderr = stop_process(*BENCH, "--fresh", folder=tmp_path, when="run/cells/.*part")
    assert code == 130
    assert "stopped: finished cells stay in run: run again (without --fresh) to resume" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_each_rank_says_where_its_part_is(folder):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agop")
    code, stderr = stop_process(
        "fit", "networks:Slow", "data", *HOW, "--all-samples", "--snapshot-every", "0",
        folder=folder, when="prior.part-rank0.* prior.part-rank1.*", command=launcher,
    )  # fmt: skip
    assert code != 0
    for rank in (0, 1):
        assert f"stopped: the last snapshot is in prior.part-rank{rank}.safetensors" in stderr
