"""Run folders under attack: damaged files, hostile files, killed benches, and two benches in one folder.

AGOP_HOSTILE_FOLDERS and AGOP_HOSTILE_KILLS set how often each is tried. Each test prints what it tried and what held.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from agop.report.run import Run
from tests.command import WIDE
from tests.deadline import wait_until
from tests.run_mutations import try_mutations, write_runs

pytestmark = pytest.mark.hostile
FOLDERS = int(os.environ.get("AGOP_HOSTILE_FOLDERS", "1000"))
KILLS = int(os.environ.get("AGOP_HOSTILE_KILLS", "10"))
BENCH = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "2", "--jobs", "2", "--method", "vanilla",
         "--method", "agop-global", "--metric", "energy", "--out", "run")  # fmt: skip


@pytest.mark.parametrize(("kind", "checksums"), [("damaged files", False), ("wrong values, right checksums", True)])
def test_reports_of_changed_run_folders(kind, checksums, tmp_path):
    runs = write_runs(tmp_path / "runs")
    outcomes, failures = try_mutations(runs, tmp_path, FOLDERS, seed=FOLDERS, checksums=checksums)
    counts = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
    print(f"\nreports of run folders, {kind}: {FOLDERS} tried, {FOLDERS - len(failures)} held ({counts})")
    assert not failures


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder))
    return folder / "run"


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-m", "agop", *BENCH], cwd=folder, text=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env=os.environ | WIDE | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def finish(process):
    """Wait for a bench that must succeed."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def files(folder):
    # os.walk skips a folder that is renamed meanwhile.
    return sum(len(names) for _, _, names in os.walk(folder))


def same_results(folder, other):
    """True if all results are equal: files byte for byte, snapshots, which have a training id, number for number."""
    Run(folder)
    names = [path.relative_to(other) for path in other.rglob("*") if path.suffix in (".jsonl", ".safetensors")]
    return all(same_file(folder / name, other / name) for name in names if name.name != "timings.jsonl")


def same_file(path, other):
    if path.parent.name != "snapshots":
        return path.read_bytes() == other.read_bytes()
    ours, theirs = load_file(path), load_file(other)
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours
    )


def test_killed_benches_resume_to_the_same_bytes(whole, tmp_path):
    """SIGKILL when the folder has a random number of files; the second start must finish the run."""
    random, held = np.random.default_rng(KILLS), 0
    for _ in range(KILLS):
        count, folder = int(random.integers(1, files(whole))), tmp_path / "killed"
        folder.mkdir()
        with start(folder) as process:
            wait_until(lambda: files(folder / "run") >= count or process.poll() is not None)  # noqa: B023
            process.send_signal(signal.SIGKILL)
        finish(start(folder))
        held += same_results(folder / "run", whole)
        shutil.rmtree(folder)
    print(f"\nbenches killed by SIGKILL and started again: {KILLS} tried, {held} held (same bytes)")
    assert held == KILLS


def test_two_benches_in_one_folder(whole, tmp_path):
    """One of them computes the run. The other ends with a message, or finds the run finished."""
    held = 0
    for number in range(KILLS):
        folder = Path(tmp_path / str(number))
        folder.mkdir()
        processes = [start(folder), start(folder)]
        errors = [process.communicate()[1] for process in processes]
        codes = sorted(process.returncode for process in processes)
        refused = all(
            "is in use by process" in text
            for process, text in zip(processes, errors, strict=True)
            if process.returncode
        )
        held += codes in ([0, 2], [0, 0]) and refused and same_results(folder / "run", whole)
        shutil.rmtree(folder)
    print(f"\ntwo benches in one folder: {KILLS} tried, {held} held (same bytes)")
    assert held == KILLS
