"""The bench as a person runs it: real processes, one of them killed."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import agop
from agop.errors import FileError
from agop.runs.gallery import Gallery
from agop.runs.rows import read
from agop.runs.spec import RunSpec

pytestmark = pytest.mark.slow
QUICK = ("bench", "xai-tris", "--quick", "--scenario", "linear", "--seeds", "2")
FEW = ("--method", "vanilla", "--method", "agop-global", "--metric", "energy", "--metric", "deletion")


def command(*arguments):
    return [sys.executable, "-m", "agop", *map(str, arguments)]


def run(*arguments, **options):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that went through, in one process."""
    folder = tmp_path_factory.mktemp("bench") / "run"
    done = run(*QUICK, "--out", folder, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert "The paper's claims" in done.stdout
    assert str(folder) in done.stdout
    return folder


def test_the_first_samples_are_kept_with_the_maps_behind_their_scores(whole):
    cell = whole / "cells" / "linear-correlated-001"
    kept = Gallery.load(cell)
    scores = load_file(cell / "scores.safetensors")
    for name in agop.methods.names():
        energy = agop.metrics.energy(torch.from_numpy(kept.maps[name]), torch.from_numpy(kept.masks["true"]))
        torch.testing.assert_close(energy, scores[f"true/{name}/energy"][:12], atol=1e-6, rtol=0, equal_nan=True)
    _, _, test = agop.scenarios.xai_tris("linear", background="correlated", seed=1)
    assert kept.labels.tolist() == test.labels[:12].tolist()
    model = agop.networks.CNN8by8().eval()
    model.load_state_dict(load_file(cell / "checkpoint.safetensors"))
    assert kept.predicted.tolist() == model(test.images[:12]).argmax(1).tolist()
    brightness = torch.from_numpy(kept.pictures[..., 0].astype(float)).flatten()
    assert torch.corrcoef(torch.stack([brightness, test.images[:12].double().flatten()]))[0, 1] > 0.999


def test_the_statistic_is_kept_by_class(whole):
    prior = agop.AGOP.load(whole / "cells" / "linear-correlated-000" / "agop.safetensors")
    shares = prior.class_counts.double() / prior.count
    by_class = prior.class_diagonals.nan_to_num(0)  # a class of which nothing was classified correctly has none
    torch.testing.assert_close(torch.einsum("k,kchw->chw", shares, by_class), prior.diagonal)
    assert json.loads((whole / "about.json").read_text())["classes"] == {"linear": ["T", "L"]}


def test_the_run_folder_holds_everything(whole):
    rows = [json.loads(line) for line in (whole / "rows.jsonl").read_text().splitlines()]
    assert {"scenario", "background", "seed", "method", "metric", "value", "n"} <= rows[0].keys()
    told = {(r["background"], r["seed"], r["method"], r["metric"]) for r in rows}
    methods, metrics = agop.methods.names(), agop.metrics.names()
    assert len(told) == len(rows) == 2 * 2 * (2 + len(methods) * len(metrics))  # and accuracy, and coverage
    cell = whole / "cells" / "linear-uncorrelated-001"
    scores = load_file(cell / "scores.safetensors")
    assert scores["true/vanilla/energy"].shape == (100,)
    row = next(r for r in rows if (r["background"], r["seed"]) == ("uncorrelated", 1) and
               (r["method"], r["metric"]) == ("vanilla", "energy"))  # fmt: skip
    assert row["value"] == pytest.approx(float(scores["true/vanilla/energy"].nanmean()))
    assert agop.AGOP.load(cell / "agop.safetensors").provenance.steps == 2 * 63
    assert set(load_file(cell / "checkpoint.safetensors")) == set(agop.networks.CNN8by8().state_dict())
    assert json.loads((whole / "about.json").read_text())["command"].startswith("agop bench xai-tris --quick")
    assert {r["step"] for r in read(whole, "convergence.jsonl")} == {100}


def test_killed_in_the_middle_and_started_again_gives_the_same_rows(whole, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(command(*QUICK, "--out", folder, "--jobs", 2), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(folder.glob("cells/linear-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)
    left = {path.name: path.stat().st_mtime for path in folder.glob("cells/linear-*")}
    assert 0 < len(left) < 4
    assert not (folder / "rows.jsonl").exists()
    with pytest.raises(FileError, match="run the bench again to go on"):
        read(folder)
    done = run(*QUICK, "--out", folder, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    for name in ("rows.jsonl", "convergence.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert all((folder / "cells" / name).stat().st_mtime == then for name, then in left.items())


def test_no_worker_outlives_a_killed_bench(tmp_path):
    process = subprocess.Popen(command(*QUICK, "--out", tmp_path / "run"), stdout=subprocess.DEVNULL)
    while not (tmp_path / "run" / "spec.json").exists():
        time.sleep(0.05)
    time.sleep(4)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(3)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_interrupted_by_hand_it_leaves_whole_cells_and_no_traceback(tmp_path):
    process = subprocess.Popen(
        command(*QUICK, "--out", tmp_path / "run"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "spec.json").exists():
        time.sleep(0.05)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "Traceback" not in told


def test_a_second_call_computes_nothing_and_a_cut_row_file_is_put_together_again(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    rows = (folder / "rows.jsonl").read_bytes()
    (folder / "rows.jsonl").write_bytes(rows[: len(rows) // 2])
    assert len(read(folder)) == rows.count(b"\n")
    assert (folder / "rows.jsonl").read_bytes() == rows
    written = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")}
    assert run(*QUICK, "--out", folder).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")} == written


def test_another_specification_is_refused_with_what_differs(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    done = run(*QUICK[:-1], "3", "--out", folder)
    assert done.returncode == 2
    assert "seeds: 2 there, 3 here" in done.stderr
    assert "--fresh" in done.stderr
    fresh = run(*QUICK[:-1], "1", "--background", "uncorrelated", *FEW, "--out", folder, "--fresh")
    assert fresh.returncode == 0, fresh.stderr
    assert RunSpec.load(folder).seeds == 1
    assert len(read(folder)) == 2 + 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "liner"], "did you mean 'linear'"),
        (["--method", "vanila"], "did you mean 'vanilla'"),
        (["--metric", "enrgy"], "did you mean 'energy'"),
        (["--background", "corelated"], "did you mean 'correlated'"),
        (["--masks", "sined"], "did you mean 'signed'"),
        (["--seeds", "0"], "seeds is 0"),
        (["--jobs", "-1"], "jobs is -1"),
    ],
)
def test_mistakes(arguments, message, tmp_path):
    done = run("bench", "xai-tris", *arguments, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "run" / "cells").exists()


def test_a_scenario_of_one_s_own_with_its_own_background_stands_beside_the_others(tmp_path):
    """One new file, in a folder of one's own; the scenarios of the package do not have its background."""
    (tmp_path / "corner.py").write_text(
        "import torch; from agop.networks import CNN8by8; from agop.scenarios import Scenario, Split, register\n"
        "def made(background, seed, masks):\n"
        "    labels = torch.arange(400) % 2; random = torch.Generator().manual_seed(seed)\n"
        "    images = 0.3 * torch.randn(400, 1, 8, 8, generator=random); images[labels == 1, :, :2, :2] += 1\n"
        "    masks = torch.zeros(400, 8, 8, dtype=torch.bool); masks[:, :2, :2] = True\n"
        "    return tuple(Split(images[a:b], labels[a:b], masks[a:b]) for a, b in ((0, 200), (200, 300), (300, 400)))\n"
        "register(Scenario('corner', 'xai-tris', made, CNN8by8, 'conv3', ('plain',)))\n"
    )
    # The workers import the script that started them, and with it the scenario.
    script = "import corner\nif __name__ == '__main__':\n    from agop.cli.main import main\n    main()\n"
    (tmp_path / "go.py").write_text(script)
    chosen = [*FEW, "--quick", "--seeds", "1", "--scenario", "corner", "--scenario", "linear"]
    go = [sys.executable, tmp_path / "go.py", "bench", "xai-tris", *chosen, "--out", tmp_path / "run"]
    done = subprocess.run(go, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places = {(row["scenario"], row["background"]) for row in read(tmp_path / "run")}
    assert places == {("corner", "plain"), ("linear", "uncorrelated"), ("linear", "correlated")}
    assert "corner / plain" in done.stdout


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    done = run(*QUICK, "--out", tmp_path / "full", "--fresh")
    assert done.returncode == 2
    assert "is not a run folder" in done.stderr
    assert (tmp_path / "full" / "letter.txt").exists()
    (tmp_path / "file").write_text("")
    assert "could not write" in run(*QUICK, "--out", tmp_path / "file" / "run").stderr


def test_a_disk_that_fills_up_loses_no_finished_cell(whole, tmp_path):
    """A real limit: no file may grow past 12 KiB, which a cell's scores do."""
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "cells" / "linear-correlated-001")
    limited = f"import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);\
resource.setrlimit(resource.RLIMIT_FSIZE, (12288, 12288)); sys.argv = {['agop', *QUICK, '--out', str(folder)]!r};\
runpy.run_module('agop', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "make room and run again" in done.stderr
    assert len(list(folder.glob("cells/linear-*"))) == 3
    assert run(*QUICK, "--out", folder).returncode == 0
    assert (folder / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()


def test_signed_masks_make_xor_scores_cancel(tmp_path):
    """The paper's XOR table: with signs in the masks the energy of every method is about zero."""
    options = ("bench", "xai-tris", "--quick", "--seeds", "1", "--scenario", "xor", "--background", "uncorrelated")
    scored = {}
    for masks in ("true", "signed"):
        assert (
            run(*options, *FEW[:4], "--metric", "energy", "--masks", masks, "--out", tmp_path / masks).returncode == 0
        )
        scored[masks] = {row["method"]: row["value"] for row in read(tmp_path / masks) if row["metric"] == "energy"}
    for method in ("vanilla", "agop-global"):
        assert abs(scored["signed"][method]) < 0.06 < 0.1 < scored["true"][method]
