"""CLEVR-XAI as a scenario: its split, its options, and runs of the benchmark."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from agop.bench.cell import run_cells
from agop.errors import InputError, UnknownNameError
from agop.pictures.preprocessing import IMAGENET
from agop.report.claims import check
from agop.report.formats import registry
from agop.report.run import Run
from agop.runs.rows import read
from agop.runs.spec import RunSpec
from agop.scenarios.clevr.dataset import Dataset
from agop.scenarios.clevr_xai import by_scene, clevr_xai
from tests.clevr import fill_cache, write_official
from tests.command import run

KINDS = ("all_objects", "single_object", "dominant")


@pytest.mark.parametrize("seed", [0, 1])
def test_no_scene_is_in_both_splits(seed):
    scenes = np.random.default_rng(3).integers(0, 40, 200)  # about five questions per scene
    training, validation = by_scene(scenes, seed)
    assert sorted([*training, *validation]) == list(range(200))
    assert not set(scenes[training]) & set(scenes[validation])
    assert 155 < len(training) < 172
    # One question per scene gives the paper's numbers.
    assert [len(part) for part in by_scene(np.arange(4952), seed)] == [3962, 990]


@pytest.fixture
def dataset(monkeypatch):
    """Random images and masks in place of drawn scenes."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    masks = {kind: random.random((60, 16, 16)) < 0.5 for kind in KINDS}
    random_dataset = Dataset(images, random.integers(0, 2, 60), np.arange(60), masks)
    monkeypatch.setattr("agop.scenarios.clevr_xai.drawn_dataset", lambda samples, size: random_dataset)
    return random_dataset


def test_seed_decides_the_split_and_no_image_is_in_both_parts(dataset):
    scenario = clevr_xai(samples=60)
    training, validation, test = scenario.splits("drawn", 0, "all_objects")
    assert (len(training), len(validation)) == (48, 12)
    assert test is validation
    contents = [{image.numpy().tobytes() for image in part.images} for part in (training, test)]
    assert [len(part) for part in contents] == [48, 12]
    assert not contents[0] & contents[1]
    again, other = scenario.splits("drawn", 0, "all_objects"), scenario.splits("drawn", 1, "single_object")
    assert torch.equal(again[1].images, validation.images)
    assert not torch.equal(other[1].images, validation.images)
    assert set(training.others) == {"single_object", "dominant"}
    assert set(other[0].others) == {"all_objects", "dominant"}


def test_images_labels_and_masks_belong_together(dataset):
    """Images are normalised by ImageNet's mean and standard deviation."""
    _, validation, _ = clevr_xai(samples=60).splits("drawn", 0, "dominant")
    _, rows = by_scene(dataset.scenes, 0)
    expected = (dataset.images[rows] / 255 - IMAGENET["mean"]) / IMAGENET["std"]
    np.testing.assert_allclose(validation.images.permute(0, 2, 3, 1), expected, atol=1e-5)
    assert np.array_equal(validation.labels, dataset.labels[rows])
    assert np.array_equal(validation.masks, dataset.masks["dominant"][rows])
    assert np.array_equal(validation.others["single_object"], dataset.masks["single_object"][rows])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"network": "resnet81"}, UnknownNameError, "did you mean 'resnet18'"),
        ({"recipe": "shrot"}, UnknownNameError, "did you mean 'short'"),
        ({"network": "efficientnet-lite0", "weights": "x.pth"}, InputError, "has its own weights"),
        ({"samples": 3}, InputError, "samples is 3"),
        ({"sampels": 30}, UnknownNameError, "did you mean 'samples'"),
    ],
)
def test_wrong_options_raise(options, error, message):
    with pytest.raises(error, match=message):
        clevr_xai(**options)


QUICK = ("bench", "clevr-xai", "--quick", "--metric", "iou", "--metric", "energy", "--metric", "deletion")
METHODS = ("vanilla", "agop-global", "agop-global@training", "mean-mask")
SELECTED = [word for method in METHODS for word in ("--method", method)]


# A worker's two threads sleep while they wait for each other: spinning is slow on a busy machine.
NO_SPINNING = {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clevr")
    fill_cache(folder / "cache", 200)
    result = run(*QUICK, *SELECTED, "--out", "run", folder=folder, AGOP_CACHE=str(folder / "cache"), **NO_SPINNING)
    assert result.returncode == 0, result.stderr
    assert "claims of the paper, about methods or scenarios that this run doesn't have" in result.stdout
    return folder / "run"


@pytest.mark.slow
def test_run_has_every_kind_of_mask_and_both_priors(drawn_run):
    rows = read(drawn_run)
    assert {row["masks"] for row in rows} == set(KINDS)
    values = {(row["masks"], row["method"], row["metric"]): row["value"] for row in rows}
    assert values["all_objects", "agop-global", "iou"] != values["all_objects", "agop-global@training", "iou"]
    assert ("single_object", "vanilla", "deletion") not in values
    assert values["all_objects", "mean-mask", "energy"] > values["single_object", "mean-mask", "energy"]
    cell = drawn_run / "cells" / "clevr-xai-drawn-000"
    assert (cell / "agop.safetensors").exists()
    assert (cell / "agop-training.safetensors").exists()
    assert not (cell / "training.pt").exists()


@pytest.mark.slow
def test_report_of_a_run_has_intervals_over_samples(drawn_run):
    report = Run(drawn_run)
    estimate = report.estimate("clevr-xai", "drawn", "vanilla", "energy")
    key = ("all_objects", "vanilla", "energy")
    row = next(row for row in report.rows if (row["masks"], row["method"], row["metric"]) == key)
    assert estimate.mean == pytest.approx(row["value"])
    assert len(estimate.values) == row["n"] == 20
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]
    text = registry.get("markdown")(report)
    assert "trained from scratch (no ImageNet weights given)" in text
    assert "200 scenes drawn offline" in text
    assert "single_object masks" in text
    assert "0.124" in text  # the paper's mIoU of vanilla
    tables = json.loads(registry.get("json")(report))["tables"]
    assert [table["masks"] for table in tables] == list(KINDS)
    assert "AGOP-Global beats IG in mIoU" not in {checked.claim for checked in check(report)}  # IG wasn't in this run


@pytest.fixture
def one_thread(monkeypatch):
    """One thread in this process, also when a cell asks for two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda count: None)
        yield
    torch.set_num_threads(threads)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from agop.bench.cell import run_cells
from agop.runs.spec import RunSpec

torch.set_num_threads(1)
torch.set_num_threads = lambda count: None
folder = Path(sys.argv[1])
spec = RunSpec.load(folder)
checkpoint = folder / "cells" / ".clevr-xai-drawn-000.part" / "training.pt"
run_cells(spec, spec.cells(), folder, lambda _: checkpoint.exists() and os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.slow
def test_killed_run_resumes_from_its_checkpoint_with_equal_bytes(tmp_path, one_thread, monkeypatch):
    monkeypatch.setenv("AGOP_CACHE", str(tmp_path / "cache"))
    fill_cache(tmp_path / "cache", 20, size=32)
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("drawn",), 1, ("vanilla", "agop-global@training"), ("iou",),
        masks="all_objects", epochs=3, test_images=2, options={"samples": 20, "size": 32},
    )  # fmt: skip
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_cells(spec, spec.cells(), whole, lambda done: None)
    spec.save(killed)
    process = subprocess.run([sys.executable, "-c", KILLED, killed], check=False)
    assert process.returncode == -signal.SIGKILL
    checkpoint = killed / "cells" / ".clevr-xai-drawn-000.part" / "training.pt"
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 1
    run_cells(spec, spec.cells(), killed, lambda done: None)
    for name in ("rows.jsonl", "convergence.jsonl", "checkpoint.safetensors", "agop-training.safetensors"):
        path = Path("cells/clevr-xai-drawn-000") / name
        assert (killed / path).read_bytes() == (whole / path).read_bytes(), name


@pytest.fixture
def release(tmp_path):
    scenes = {index: ("mmmrr", "rrrrm")[index % 2] for index in range(20)}
    write_official(tmp_path / "release", scenes, {index: index for index in scenes})
    return tmp_path / "release"


@pytest.mark.slow
def test_without_mask_images_the_ground_truths_are_scored(tmp_path, release, one_thread):
    shutil.rmtree(release / "masks")
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("official",), 1, ("vanilla",), ("iou",),
        masks="all_objects", epochs=1, test_images=4, options={"data": str(release), "size": 32},
    )  # fmt: skip
    run_cells(spec, spec.cells(), tmp_path / "run", lambda done: None)
    rows = (tmp_path / "run" / "cells" / "clevr-xai-official-000" / "rows.jsonl").read_text().splitlines()
    assert {json.loads(row)["masks"] for row in rows} == {"all_objects", "single_object"}


@pytest.mark.slow
def test_official_release_runs_and_its_summary_is_reported(tmp_path, release):
    result = run(*QUICK, *SELECTED, "--data", release, "--out", "run", folder=tmp_path, **NO_SPINNING)
    assert result.returncode == 0, result.stderr
    report = run("report", "run", "--format", "markdown", folder=tmp_path).stdout
    assert "the official images" in report
    assert "found: 20 scenes" in report
    assert "clevr-xai / official" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "resnet50"], "did you mean 'resnet18'"),
        (["--full"], "--full"),
        (["--weights", "none.pth"], "none.pth"),
        (["--data", "."], "download CLEVR-XAI_v1.0.zip"),
        (["--method", "gradcam@layer9"], "gradcam@layer9"),
        (["--metric", "enrgy"], "did you mean 'energy'"),
    ],
)
def test_wrong_arguments_fail_before_the_run_starts(arguments, message, tmp_path):
    result = run(*QUICK, *arguments, "--out", "run", folder=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "run").exists()
