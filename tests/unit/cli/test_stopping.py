"""Ctrl-C and SIGTERM: commands end with one line that says what is kept."""

import os
import signal
import subprocess
import sys

import pytest
import torch

import agop
from agop.bench import CNN8by8
from tests.command import WIDE, error_of, run, wait_until
from tests.image_files import save_random

PART = "prior.part-rank0.safetensors"
SIGNALS = [signal.SIGINT, signal.SIGTERM]
HOW = ("--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--batch-size", "1")
PREPARED = "images: 8×8 gray, mean 0.5, std 0.5 (from options)\n"
NETWORKS = """
import os, signal, time
from pathlib import Path
from agop.bench import CNN8by8

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
    for kind in ("data", "masks"):
        save_random(tmp_path / kind, *(f"class{index % 2}/{index}.png" for index in range(40)))
    (tmp_path / "networks.py").write_text(NETWORKS)
    return tmp_path


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("arguments", "message", "unwritten"),
    [
        ("fit networks:Stopped data --all-samples", "nothing was written to prior.safetensors", "*.safetensors"),
        ("explain networks:Stopped data --method vanilla",
         "finished overlays stay in explanations/, without index.html and maps.safetensors",
         "explanations/maps.safetensors"),
        ("evaluate networks:Stopped data masks --method vanilla --threshold 99",
         "finished methods stay in runs/evaluation: run the same command to resume", "runs/*/*.json*"),
        ("fit networks:Stopped data --all-samples --snapshot-every 0",
         f"the last snapshot is in {PART}", "prior.safetensors"),
    ],
    ids=["fit", "explain", "evaluate", "fit with snapshots"],
)  # fmt: skip
def test_a_stopped_command_says_what_is_kept(folder, number, arguments, message, unwritten):
    result = run(*arguments.split(), *HOW, folder=folder, SIGNAL=str(int(number)))
    assert (result.returncode, result.stdout) == (130, PREPARED)
    assert result.stderr.strip() == f"stopped: {message}"
    assert not list(folder.glob(unwritten))
    if PART in message:
        assert 0 < agop.AGOP.load(folder / PART).count < 40


def test_fit_mentions_the_last_snapshot_in_errors(folder):
    (folder / "networks.py").write_text(NETWORKS.replace("signal.raise_signal(", "x = x * float('nan') + 0 * ("))
    options = ("--all-samples", "--snapshot-every", "0", *HOW)
    message = error_of("fit", "networks:Stopped", "data", *options, folder=folder, SIGNAL="0")
    assert "NaN" in message
    assert f"; the last snapshot is in {PART}" in message


def test_sigterm_is_not_ignored_after_a_command_failed(tmp_path):
    """It's ignored only while the error is printed: torchrun must be able to end the process afterwards."""
    handler = signal.getsignal(signal.SIGTERM)
    assert "missing" in error_of("report", "missing", folder=tmp_path)
    assert signal.getsignal(signal.SIGTERM) == handler


def stop_process(*arguments, folder, when, before=("-m", "agop")):
    """Exit code and standard error of fit after Ctrl-C, sent to all processes once these files exist."""
    process = subprocess.Popen(
        [sys.executable, *before, "fit", "networks:Slow", "data", *HOW, "--all-samples", *arguments], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | WIDE | {"GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    wait_until(lambda: process.poll() is not None or all((folder / name).exists() for name in when), seconds=120)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert stdout == PREPARED
    return process.returncode, stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_real_process(folder):
    code, stderr = stop_process(folder=folder, when=["called"])
    assert code == 130
    assert "stopped: nothing was written to prior.safetensors" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_each_rank_says_where_its_part_is(folder):
    parts = [f"prior.part-rank{rank}.safetensors" for rank in (0, 1)]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agop")
    code, stderr = stop_process("--snapshot-every", "0", folder=folder, when=parts, before=launcher)
    assert code != 0
    for part in parts:
        assert f"stopped: the last snapshot is in {part}" in stderr
