"""The bench on real data: one run shared by all tests, others compared with it byte by byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import agop
from agop.bench.cell import run_cells
from agop.bench.run_folder import run_folder
from agop.bench.runner import cells_of_rank
from agop.errors import FileError, InputError
from agop.runs.gallery import Gallery
from agop.runs.rows import FILES, read
from agop.runs.spec import RunSpec
from tests.command import WIDE, error_of, run_checked, run_process
from tests.deadline import wait_until

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
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in ("rows.jsonl", FILES[-1]))


def test_gallery_has_the_first_samples_with_the_maps_behind_their_scores(whole):
    cell = whole / "cells" / "linear-correlated-001"
    gallery = Gallery.load(cell)
    scores = load_file(cell / "scores.safetensors")
    for name in METHODS:
        energy = agop.metrics.energy(torch.from_numpy(gallery.maps[name]), torch.from_numpy(gallery.masks["own"]))
        torch.testing.assert_close(energy, scores[f"own/{name}/energy"][:12], atol=1e-6, rtol=0, equal_nan=True)
    _, _, test = agop.scenarios.xai_tris("linear", background="correlated", seed=1)
    assert gallery.labels.tolist() == test.labels[:12].tolist()
    model = agop.networks.CNN8by8().eval()
    model.load_state_dict(load_file(cell / "checkpoint.safetensors"))
    assert gallery.predicted.tolist() == model(test.images[:12]).argmax(1).tolist()
    brightness = torch.from_numpy(gallery.pictures[..., 0].astype(float)).flatten()
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
    assert set(load_file(cell / "checkpoint.safetensors")) == set(agop.networks.CNN8by8().state_dict())
    about = json.loads((whole / "about.json").read_text())
    assert about["command"].startswith("agop bench xai-tris --quick")
    assert about["classes"] == {"linear": ["T", "L"]}
    assert {r["step"] for r in read(whole, "convergence.jsonl")} == {100}


def test_every_method_and_metric_is_scored(tmp_path, no_workers):
    methods, metrics = agop.methods.names(), agop.metrics.names()
    spec = RunSpec("xai-tris", ("linear",), ("correlated",), 1, methods, metrics, "own", epochs=2, test_images=20)
    run_cells(spec, spec.cells(), tmp_path, lambda fraction: None)
    lines = (tmp_path / "cells" / "linear-correlated-000" / "rows.jsonl").read_text().splitlines()
    keys = {(row["masks"], row["method"], row["metric"]) for row in map(json.loads, lines)}
    of_maps = [metric for metric in metrics if not agop.metrics.get(metric).needs_model]
    own = {("own", method, metric) for method in methods for metric in metrics}
    union = {("union", method, metric) for method in methods for metric in of_maps}
    coverage = {(masks, "masks", "coverage") for masks in ("own", "union")}
    assert keys == {("own", "model", "accuracy")} | coverage | own | union
    assert len(lines) == len(keys)


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
    with pytest.raises(FileError, match=r"2 of 4 cells are missing.*run the bench again to resume"):
        read(tmp_path / "run")
    (tmp_path / "closed").unlink()
    run_checked(*QUICK, "--out", "run", folder=tmp_path)
    assert same_rows(tmp_path / "run", whole)
    assert before.items() <= finished(tmp_path / "run").items()


def test_ctrl_c_keeps_finished_cells_without_a_traceback(half_done, tmp_path):
    process, children = half_done
    os.killpg(process.pid, signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 130
    assert message == "stopped: finished cells stay in run: run again (without --fresh) to resume\n"
    assert len(finished(tmp_path / "run")) == 2
    wait_until(lambda: not any(map(alive, children)))


def test_second_call_computes_nothing_and_a_truncated_row_file_is_restored(home, whole, copy):
    rows = (copy / "rows.jsonl").read_bytes()
    (copy / "rows.jsonl").write_bytes(rows[: len(rows) // 2])
    assert len(read(copy)) == rows.count(b"\n")
    before = {path: path.stat().st_mtime_ns for path in (copy / "cells").rglob("*")}
    run_checked(*QUICK, "--out", copy, folder=home)
    assert same_rows(copy, whole)
    assert {path: path.stat().st_mtime_ns for path in (copy / "cells").rglob("*")} == before


def test_another_specification_is_refused_and_fresh_replaces_the_run(home, copy, no_workers):
    one = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--background", "uncorrelated", "--seeds", "1", *FEW)
    message = error_of(*one, "--out", copy, folder=home)
    assert "seeds: 2 there, 1 here" in message
    assert "--fresh" in message
    run_checked(*one, "--out", copy, "--fresh", folder=home)
    assert RunSpec.load(copy).seeds == 1
    assert len(read(copy)) == 1 + 2 + 2 * 3
    assert list(finished(copy)) == ["linear-uncorrelated-000"]


@pytest.mark.parametrize("seeds", [1, 3, 7])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_shares_of_the_ranks_are_all_cells_once(seeds, world_size):
    names = ("linear", "linear-mlp", "xor")
    spec = RunSpec("xai-tris", names, ("correlated",), seeds, ("vanilla",), ("iou",))
    shares = [cells_of_rank(spec, rank, world_size) for rank in range(world_size)]
    assert sorted(cell.name for share in shares for cell in share) == sorted(cell.name for cell in spec.cells())
    if world_size <= 3:
        assert all(shares)


def test_rank_with_another_specification_or_without_the_folder_raises(whole, tmp_path, monkeypatch):
    other = RunSpec("xai-tris", ("linear",), ("correlated",), 1, ("vanilla",), ("iou",))
    with pytest.raises(InputError, match="seeds: 2 there, 1 here"), run_folder(other, whole, rank=1):
        pass
    monkeypatch.setattr("agop.bench.run_folder._START_SECONDS", 0)
    with pytest.raises(InputError, match=r"rank 1 sees no .*all machines share"):
        run_folder(other, tmp_path / "elsewhere", rank=1).__enter__()


def test_user_scenario_with_its_own_background_runs_beside_the_others(tmp_path):
    """One new file in the user's folder; the scenarios of the package lack its background."""
    (tmp_path / "corner.py").write_text(
        "import torch; from agop.networks import CNN8by8; from agop.scenarios import Scenario, Split, register\n"
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


def test_signed_masks_make_xor_scores_cancel(tmp_path, no_workers):
    """The paper's XOR table: with signed masks the energy of every method is about zero."""
    options = ("bench", "xai-tris", "--quick", "--seeds", "1", "--scenario", "xor", "--background", "uncorrelated")
    energy = {}
    for masks in ("true", "signed"):
        run_checked(*options, *FEW[:4], "--metric", "energy", "--masks", masks, "--out", masks, folder=tmp_path)
        energy[masks] = {row["method"]: row["value"] for row in read(tmp_path / masks) if row["metric"] == "energy"}
    for method in ("vanilla", "agop-global"):
        assert abs(energy["signed"][method]) < 0.06 < 0.1 < energy["true"][method]
