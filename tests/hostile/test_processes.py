"""Killed benches, two benches in one folder, and several users of one running `agop app`.

AGOP_HOSTILE_KILLS, _REQUESTS and _USERS set how often each is tried. Each test prints what it tried and what held.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.app_server import explain, explain_event, serving, upload
from tests.command import WIDE, run_checked, wait_until

pytestmark = pytest.mark.hostile
KILLS = int(os.environ.get("AGOP_HOSTILE_KILLS", "10"))
REQUESTS = int(os.environ.get("AGOP_HOSTILE_REQUESTS", "250"))
USERS = int(os.environ.get("AGOP_HOSTILE_USERS", "8"))
BENCH = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "2", "--jobs", "2", "--method", "vanilla",
         "--method", "agop-global", "--metric", "energy", "--out", "run")  # fmt: skip


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
    run_checked("report", folder, folder=folder.parent)
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
            "is in use by another process" in text
            for process, text in zip(processes, errors, strict=True)
            if process.returncode
        )
        held += codes in ([0, 2], [0, 0]) and refused and same_results(folder / "run", whole)
        shutil.rmtree(folder)
    print(f"\ntwo benches in one folder: {KILLS} tried, {held} held (same bytes)")
    assert held == KILLS


def noise(seed):
    """A PNG file."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 16), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def answered(address, event, number):
    """Upload two images and a file that isn't one, and explain them."""
    names = [f"first-{number}.png", f"second-{number}.png"]
    files = [(name, noise(2 * number + place)) for place, name in enumerate(names)]
    code, text = upload(address, *files, (f"note-{number}.png", b"a note"))
    if code != 200:
        return f"upload: {code} {text}"
    answer = explain(address, json.loads(text), event)
    if not answer["success"]:
        return json.dumps(answer["output"])[:300]
    page = answer["output"]["data"][0]
    complete = page.count('class="agop-card"') == 2 and f"note-{number}.png: can" in page
    return "held" if complete and all(name in page for name in names) else page[:300]


def test_concurrent_users(tmp_path):
    with serving(tmp_path) as (address, process), ThreadPoolExecutor(USERS) as users:
        event = explain_event(address)
        outcomes = Counter(users.map(lambda number: answered(address, event, number), range(REQUESTS)))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    print(f"\nrequests of {USERS} concurrent users of the app: {REQUESTS} tried, {outcomes['held']} held")
    assert (tmp_path / "errors").read_text() == ""
    assert outcomes == {"held": REQUESTS}
