"""The bench on real data: one run shared by all tests, others compared with it byte by byte."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

import agop
from tests.command import WIDE, error_of, run_checked, run_process, wait_until

pytestmark = pytest.mark.slow
METHODS = ("vanilla", "gradcam", "agop-global")
METRICS = ("--metric", "energy", "--metric", "deletion")
FEW = ("--method", "vanilla", "--method", "agop-global", *METRICS)
QUICK = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "2",
         "--background", "uncorrelated", "--background", "correlated",
         *(part for name in (*METHODS, "gate:Gate") for part in ("--method", name)), *METRICS)  # fmt: skip
# A method that lets each worker finish one cell and holds it in the second: tests can kill it there.
GATE = '''
import time
from pathlib import Path
from agop.methods import Method

calls = []

class Gate(Method):
    """|x|. While a file named closed exists, each process scores only its first cell."""
    name = "gate"

    def maps(self, job):
        calls.append(job)
        while len(calls) > 2 and Path("closed").exists():  # two calls per cell: warm-up and all images
            time.sleep(0.01)
        return job.images.abs().sum(1)
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A working folder with the user's own method."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "gate.py").write_text(GATE)
    return folder


@pytest.fixture(scope="module")
def whole(home):
    """An uninterrupted run of four cells, in worker processes."""
    done = run_checked(*QUICK, "--out", "whole", "--jobs", 2, folder=home)
    assert "The paper's claims" in done.stdout
    assert "rows: whole/rows.jsonl" in done.stdout
    assert "best by Energy-GT" in done.stdout
    assert "Means over seeds" not in done.stdout
    assert len(done.stdout.splitlines()) <= 40
    assert "Means over seeds" in run_checked(*QUICK, "--out", "whole", "--jobs", 2, "--verbose", folder=home).stdout
    return home / "whole"


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.fixture
def no_workers(monkeypatch):
    """Compute cells in this process, which saves importing torch in workers."""

    def run_tasks(work, tasks, workers):
        for name, task in tasks.items():
            work(task, lambda fraction: None)
            yield name, 1.0

    monkeypatch.setattr("agop.bench.runner.run_tasks", run_tasks)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def same_rows(folder, other):
    names = ("rows.jsonl", "convergence.jsonl")
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in names)


def read(folder, name="rows.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_gallery_has_the_first_samples_with_the_maps_behind_their_scores(whole):
    cell = whole / "cells" / "linear-correlated-001"
    gallery = load_file(cell / "gallery.safetensors")
    scores = load_file(cell / "scores.safetensors")
    for name in METHODS:
        energy = agop.metrics.energy(gallery[f"maps/{name}"], gallery["masks/own"])
        torch.testing.assert_close(energy, scores[f"own/{name}/energy"][:12], atol=1e-6, rtol=0, equal_nan=True)
    _, _, test = agop.bench.scenarios.xai_tris("linear", background="correlated", seed=1)
    assert gallery["labels"].tolist() == test.labels[:12].tolist()
    model = agop.bench.CNN8by8().eval()
    model.load_state_dict(load_file(cell / "checkpoint.safetensors"))
    assert gallery["predicted"].tolist() == model(test.images[:12]).argmax(1).tolist()
    brightness = gallery["pictures"][..., 0].double().flatten()
    assert torch.corrcoef(torch.stack([brightness, test.images[:12].double().flatten()]))[0, 1] > 0.999


def test_run_folder_has_rows_scores_statistic_weights_and_command(whole):
    rows = read(whole)
    assert {"scenario", "background", "seed", "method", "metric", "value", "n"} <= rows[0].keys()
    keys = {(r["background"], r["seed"], r["masks"], r["method"], r["metric"]) for r in rows}
    # Accuracy, coverage of two kinds of masks, four methods × energy with both kinds and deletion.
    assert len(keys) == len(rows) == 2 * 2 * (1 + 2 + 4 * 3)
    cell = whole / "cells" / "linear-uncorrelated-001"
    scores = load_file(cell / "scores.safetensors")
    assert scores["own/vanilla/energy"].shape == scores["own/model/correct"].shape == (100,)
    place = {"background": "uncorrelated", "seed": 1, "masks": "own", "method": "vanilla", "metric": "energy"}
    [row] = [row for row in rows if place.items() <= row.items()]
    assert row["value"] == pytest.approx(float(scores["own/vanilla/energy"].nanmean()))
    prior = agop.AGOP.load(cell / "agop.safetensors")
    assert prior.provenance.steps == 2 * 63
    shares = prior.class_counts.double() / prior.count
    by_class = prior.class_diagonals.nan_to_num(0)  # NaN for a class without a correctly classified sample
    torch.testing.assert_close(torch.einsum("k,kchw->chw", shares, by_class), prior.diagonal)
    assert set(load_file(cell / "checkpoint.safetensors")) == set(agop.bench.CNN8by8().state_dict())
    about = json.loads((whole / "about.json").read_text())
    assert about["command"].startswith("agop bench xai-tris --quick")
    assert about["classes"] == {"linear": ["T", "L"]}
    assert {r["step"] for r in read(whole, "convergence.jsonl")} == {100}


@pytest.mark.usefixtures("no_workers")
def test_every_method_and_metric_is_scored(tmp_path):
    metrics = agop.metrics.names()
    options = [part for name in metrics for part in ("--metric", name)]
    one = ("--full", "--quick", "--scenario", "linear", "--network", "cnn", "--background", "correlated", "--seeds", 1)
    run_checked("bench", "xai-tris", *one, *options, "--out", "run", folder=tmp_path)
    methods = json.loads((tmp_path / "run" / "spec.json").read_text())["methods"]
    assert len(methods) > 20
    rows = read(tmp_path / "run")
    keys = {(row["masks"], row["method"], row["metric"]) for row in rows}
    of_maps = [metric for metric in metrics if not agop.metrics.get(metric).needs_model]
    own = {("own", method, metric) for method in methods for metric in metrics}
    union = {("union", method, metric) for method in methods for metric in of_maps}
    coverage = {(masks, "masks", "coverage") for masks in ("own", "union")}
    assert keys == {("own", "model", "accuracy")} | coverage | own | union
    assert len(rows) == len(keys)


@pytest.fixture
def half_done(tmp_path):
    """A bench whose two workers have each finished one cell and wait in the next: its process and its children.

    The process leads a group, to which Ctrl-C can be sent.
    """
    (tmp_path / "gate.py").write_text(GATE)
    (tmp_path / "closed").touch()
    with subprocess.Popen(
        [sys.executable, "-m", "agop", *QUICK, "--out", "run", "--jobs", "2"], cwd=tmp_path, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ | WIDE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # a background job ignores it
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: len(finished(tmp_path / "run")) == 2 or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(children) >= 2
            yield process, children
        finally:
            process.kill()


def finished(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("cells/linear-*")}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_killed_run_leaves_no_worker_and_resumes_to_the_same_rows(whole, half_done, tmp_path, no_workers):
    process, children = half_done
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, children)))
    before = finished(tmp_path / "run")
    assert set(before) == {"linear-uncorrelated-000", "linear-correlated-000"}
    assert not (tmp_path / "run" / "rows.jsonl").exists()
    assert "2 of 4 cells are missing" in error_of("report", "run", folder=tmp_path)
    (tmp_path / "closed").unlink()
    run_checked(*QUICK, "--out", "run", folder=tmp_path)
    assert same_rows(tmp_path / "run", whole)
    assert before.items() <= finished(tmp_path / "run").items()


def test_ctrl_c_keeps_finished_cells_without_a_traceback(half_done, tmp_path):
    process, children = half_done
    os.killpg(process.pid, signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 130
    assert message.endswith("stopped: finished cells stay in run: run again (without --fresh) to resume\n")
    assert "Traceback" not in message
    assert len(finished(tmp_path / "run")) == 2
    wait_until(lambda: not any(map(alive, children)))


def test_second_call_computes_nothing_and_a_truncated_row_file_is_restored(home, whole, copy):
    rows = (copy / "rows.jsonl").read_bytes()
    (copy / "rows.jsonl").write_bytes(rows[: len(rows) // 2])
    before = {path: path.stat().st_mtime_ns for path in (copy / "cells").rglob("*")}
    run_checked(*QUICK, "--out", copy, folder=home)
    assert same_rows(copy, whole)
    assert {path: path.stat().st_mtime_ns for path in (copy / "cells").rglob("*")} == before


def test_another_specification_is_refused_and_fresh_replaces_the_run(home, copy, no_workers):
    one = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--background", "uncorrelated", "--seeds", "1", *FEW)
    message = error_of(*one, "--out", copy, folder=home)
    assert "seeds: 2 there, 1 here" in message
    assert "--fresh" in message
    (copy / "letter.txt").write_text("mine")
    run_checked(*one, "--out", copy, "--fresh", folder=home)
    assert json.loads((copy / "spec.json").read_text())["seeds"] == 1
    assert (copy / "letter.txt").read_text() == "mine"
    assert len(read(copy)) == 1 + 2 + 2 * 3
    assert list(finished(copy)) == ["linear-uncorrelated-000"]


def test_user_scenario_with_its_own_background_runs_beside_the_others(tmp_path):
    """One new file in the user's folder; the scenarios of the package lack its background."""
    (tmp_path / "corner.py").write_text(
        "import torch; from agop.bench import CNN8by8; from agop.bench.scenarios import Scenario, Split, register\n"
        "def splits(background, seed, masks):\n"
        "    labels = torch.arange(400) % 2; random = torch.Generator().manual_seed(seed)\n"
        "    images = 0.3 * torch.randn(400, 1, 8, 8, generator=random); images[labels == 1, :, :2, :2] += 1\n"
        "    masks = torch.zeros(400, 8, 8, dtype=torch.bool); masks[:, :2, :2] = True\n"
        "    return tuple(Split(images[a:b], labels[a:b], masks[a:b]) for a, b in ((0, 200), (200, 300), (300, 400)))\n"
        "register(Scenario('corner', 'xai-tris', splits, CNN8by8, 'conv3', ('plain',)))\n"
    )
    # Workers import the script that started them, and with it the scenario.
    script = "import corner\nif __name__ == '__main__':\n    from agop.cli.main import main\n    main()\n"
    (tmp_path / "go.py").write_text(script)
    arguments = [*FEW, "--quick", "--seeds", "1", "--scenario", "corner", "--scenario", "linear",
                 "--background", "plain", "--background", "uncorrelated", "--jobs", "2"]  # fmt: skip
    done = run_process("bench", "xai-tris", *arguments, "--out", "run", before=("go.py",), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    places = {(row["scenario"], row["background"]) for row in read(tmp_path / "run")}
    assert places == {("corner", "plain"), ("linear", "uncorrelated")}
    assert "corner / plain" in done.stdout


def test_full_disk_loses_no_finished_cell(home, whole, copy, no_workers):
    """A real limit: no file may grow past 4 KiB, which a cell's maps do."""
    shutil.rmtree(copy / "cells" / "linear-correlated-001")
    limited = """
import resource, runpy, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
runpy.run_module("agop", run_name="__main__")
"""
    done = run_process(*QUICK, "--out", copy, before=("-c", limited), folder=home)
    assert done.returncode == 2
    assert "finished cells are safe: free disk space and run again to resume" in done.stderr
    assert len(finished(copy)) == 3
    run_checked(*QUICK, "--out", copy, folder=home)
    assert same_rows(copy, whole)


@pytest.mark.usefixtures("no_workers")
def test_methods_with_a_sketch_run_if_they_are_named(tmp_path):
    named = ("--method", "agop-ixg", "--method", "agop-subspace", "--metric", "energy", "--seeds", "1", "--out", "run")
    run_checked("bench", "xai-tris", "--quick", "--scenario", "linear", *named, folder=tmp_path)
    energy = {row["method"]: row["value"] for row in read(tmp_path / "run") if row["metric"] == "energy"}
    assert energy["agop-ixg"] > 0.06  # the shape's share of the pixels
    assert energy["agop-subspace"] > 0.06
    (prior,) = (tmp_path / "run" / "cells").glob("*/agop.safetensors")
    assert len(agop.AGOP.load(prior).sketch) == 16


def test_signed_masks_make_xor_scores_cancel(tmp_path, no_workers):
    """The paper's XOR table: with signed masks the energy of every method is about zero."""
    options = ("bench", "xai-tris", "--quick", "--seeds", "1", "--scenario", "xor", "--background", "uncorrelated")
    energy = {}
    for masks in ("true", "signed"):
        run_checked(*options, *FEW[:4], "--metric", "energy", "--masks", masks, "--out", masks, folder=tmp_path)
        energy[masks] = {row["method"]: row["value"] for row in read(tmp_path / masks) if row["metric"] == "energy"}
    for method in ("vanilla", "agop-global"):
        assert abs(energy["signed"][method]) < 0.06 < 0.1 < energy["true"][method]


def test_a_second_job_in_the_folder_raises(home, copy):
    with FileLock(copy / ".lock"):
        for fresh in ([], ["--fresh"]):
            message = error_of(*QUICK, *fresh, "--out", copy, folder=home)
            assert "is in use by another process: wait until it ends, or choose another folder" in message
    assert len(finished(copy)) == 4


def test_other_versions_are_refused_unless_forced(home, copy, no_workers, monkeypatch):
    shutil.rmtree(copy / "cells" / "linear-correlated-001")
    other = dict.fromkeys(("python", "agop", "torch", "numpy"), "99.0")
    monkeypatch.setattr("agop.report.folder.versions", lambda: other)
    problem = rf"was started with agop \S+, torch {re.escape(torch.__version__)}, this is agop 99.0, torch 99.0"
    assert re.search(rf"{problem}: .*--fresh.*--force", error_of(*QUICK, "--out", copy, folder=home))
    done = run_checked(*QUICK, "--force", "--out", copy, folder=home)
    assert re.search(rf"{problem}: its cells are of different versions", done.stderr)
    run_checked(*QUICK, "--out", copy, folder=home)  # nothing is missing
