"""The second benchmark: its data on both sides of the split, its networks, and a run of it, killed and gone on with."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from agop.cli.bench import app
from agop.errors import AGOPError, AGOPWarning, InputError, ModelError, UnknownNameError
from agop.networks import ResNet18
from agop.networks.pretrained import efficientnet_lite0, resnet18
from agop.pictures.preprocessing import IMAGENET
from agop.report.claims import check
from agop.report.formats import registry
from agop.report.run import Run
from agop.runs.rows import read
from agop.scenarios.clevr.cache import cache_folder
from agop.scenarios.clevr.dataset import drawn_dataset, drawn_masks, drawn_sample, official_dataset, unique_objects
from agop.scenarios.clevr.render.images import object_masks, render
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.scene import random_scene
from agop.scenarios.clevr_xai import by_scene, clevr_xai
from tests.clevr import write_official

FEW = 60


@pytest.fixture(scope="module")
def pictures():
    return drawn_dataset(FEW, jobs=2)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_scene_is_on_both_sides(seed):
    scenes = np.random.default_rng(3).integers(0, 40, 200)  # about five questions a scene
    training, validation = by_scene(scenes, seed)
    assert sorted([*training, *validation]) == list(range(200))
    assert not set(scenes[training]) & set(scenes[validation])
    assert 155 < len(training) < 172


def test_one_question_a_scene_gives_the_papers_numbers():
    training, validation = by_scene(np.arange(4952), 0)
    assert (len(training), len(validation)) == (3962, 990)


def test_the_split_is_made_by_the_seed_and_no_picture_is_in_both_parts():
    scenario = clevr_xai(samples=FEW)
    training, validation, test = scenario.splits("drawn", 0, "all_objects")
    assert (len(training), len(validation)) == (48, 12)
    assert test is validation
    digests = [{hashlib.sha256(image.numpy().tobytes()).digest() for image in part.images} for part in (training, test)]
    assert [len(part) for part in digests] == [48, 12]
    assert not digests[0] & digests[1]
    other = scenario.splits("drawn", 1, "single_object")
    assert not torch.equal(other[1].images, validation.images)
    assert set(training.others) == {"single_object", "dominant"}
    assert set(other[0].others) == {"all_objects", "dominant"}


def test_images_are_normalised_as_imagenet_has_it(pictures):
    _, validation, _ = clevr_xai(samples=FEW).splits("drawn", 0, "all_objects")
    _, rows = by_scene(pictures.scenes, 0)
    red = pictures.images[rows[0], 5, 7, 0] / 255
    assert validation.images[0, 0, 5, 7] == pytest.approx((red - IMAGENET["mean"][0]) / IMAGENET["std"][0], abs=1e-5)


def test_drawn_samples_are_the_task(pictures):
    """Each is what a question about its scene asks; the masks lie in one another; labels are both there."""
    for number in (0, 7, 59):
        index, sample = drawn_sample(0, number)
        scene = random_scene(0, index)
        assert pictures.scenes[number] == index
        assert sample.queried in unique_objects(scene.objects)
        things = scene.objects
        material = things[sample.queried].material
        assert pictures.labels[number] == ("metal", "rubber").index(material) == sample.label
        assert sum(thing.material == material for thing in things) >= 0.6 * len(things)
        assert sample.dominant == tuple(i for i, thing in enumerate(things) if thing.material == material)
        assert np.array_equal(pictures.images[number], render(scene, 64, 64))
        assert np.array_equal([pictures.masks[kind][number] for kind in pictures.masks], drawn_masks(scene, sample, 64))
        exact = object_masks(scene, 64, 64).any(axis=0)
        assert (pictures.masks["all_objects"][number] & exact).sum() > 0.95 * exact.sum()
    everything, single, dominant = (pictures.masks[kind] for kind in ("all_objects", "single_object", "dominant"))
    assert not (dominant & ~everything).any()
    assert not (single & ~dominant).any()
    assert single.any(axis=(1, 2)).all()
    assert 10 < pictures.labels.sum() < 50
    assert len(set(pictures.scenes)) == FEW


def test_questions_are_only_about_objects_that_are_unique_without_their_material():
    red, blue = (
        SceneObject("cube", "small", "metal", "red", 0, 0, 0),
        SceneObject("cube", "small", "metal", "blue", 0, 0, 0),
    )
    twin = replace(red, material="rubber")
    assert unique_objects([red, twin, blue]) == [2]
    assert unique_objects([red, twin]) == []
    assert unique_objects([red, replace(red, size="large"), replace(red, shape="sphere")]) == [0, 1, 2]


@pytest.mark.slow
def test_masks_cover_what_the_paper_says():
    """16.2 and 2.3 % of the pixels, to within a percentage point; the error of a mean over 300 is about 0.4 points."""
    samples = [drawn_sample(1, number) for number in range(300)]
    masks = [drawn_masks(random_scene(1, index), sample, 64) for index, sample in samples]
    covered = np.stack(masks).mean(axis=(0, 2, 3))
    assert covered[0] == pytest.approx(0.162, abs=0.014)
    assert covered[1] == pytest.approx(0.023, abs=0.01)


def test_the_cache_is_used_checked_and_repaired(pictures, tmp_path):
    shutil.copytree(cache_folder(), tmp_path, dirs_exist_ok=True)
    cache, files = tmp_path, sorted(tmp_path.glob("clevr/*/*.npz"))[:3]
    assert len(files) == 3
    assert str(cache_folder()) == os.environ["AGOP_CACHE"]
    then = [path.stat().st_mtime_ns for path in files]
    again = drawn_dataset(FEW, cache=cache)
    assert [path.stat().st_mtime_ns for path in files] == then
    assert np.array_equal(again.images, pictures.images)
    assert np.array_equal(drawn_dataset(10, cache=cache).pictures, pictures.images[:10])
    content = files[1].read_bytes()
    files[1].write_bytes(content[:-100] + b"x" * 100)
    with pytest.warns(AGOPWarning, match="not what was written there"):
        repaired = drawn_dataset(FEW, cache=cache)
    assert np.array_equal(repaired.pictures, pictures.images)
    assert files[1].read_bytes() == content
    files[0].unlink()
    assert np.array_equal(drawn_dataset(FEW, cache=cache).masks["dominant"], pictures.masks["dominant"])
    with pytest.raises(InputError, match="samples is 0"):
        drawn_dataset(0, cache=cache)


def test_torchvisions_file_loads_into_our_resnet18_with_a_new_last_layer(tmp_path):
    torch.manual_seed(0)
    given = ResNet18(1000)
    torch.save(given.state_dict(), tmp_path / "resnet18-f37072fd.pth")
    model = resnet18(2, tmp_path / "resnet18-f37072fd.pth")
    assert model.fc.out_features == 2
    for name, value in given.state_dict().items():
        assert name.startswith("fc.") or torch.equal(model.state_dict()[name], value)
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "wrong.pth")
    with pytest.raises(ModelError, match=r"wrong\.pth does not fit"):
        resnet18(2, tmp_path / "wrong.pth")
    torch.save(given, tmp_path / "pickled.pth")
    with pytest.raises(OSError, match="could run code"):
        resnet18(2, tmp_path / "pickled.pth")


def test_efficientnet_brings_real_imagenet_weights():
    """Its features tell more than noise: the first layer's weights are far from a random start's, and fixed."""
    torch.manual_seed(0)
    first = efficientnet_lite0(2)
    torch.manual_seed(1)
    second = efficientnet_lite0(2)
    assert torch.equal(first._conv_stem.weight, second._conv_stem.weight)
    assert not torch.equal(first._fc.weight, second._fc.weight)
    assert first._bn0.running_var.std() > 0.1  # statistics of real pictures
    with torch.no_grad():
        assert first.eval()(torch.randn(2, 3, 64, 64)).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"network": "resnet81"}, UnknownNameError, "did you mean 'resnet18'"),
        ({"recipe": "shrot"}, UnknownNameError, "did you mean 'short'"),
        ({"network": "efficientnet-lite0", "weights": "x.pth"}, InputError, "brings its own weights"),
        ({"samples": 3}, InputError, "samples is 3"),
        ({"sampels": 30}, UnknownNameError, "did you mean 'samples'"),
    ],
)
def test_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        clevr_xai(**options)


QUICK = ("bench", "clevr-xai", "--quick", "--metric", "iou", "--metric", "energy", "--metric", "deletion")
METHODS = (
    "--method",
    "vanilla",
    "--method",
    "agop-global",
    "--method",
    "agop-global@training",
    "--method",
    "mean-mask",
)


def command(*arguments):
    return [sys.executable, "-m", "agop", *map(str, arguments)]


def run(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clevr") / "run"
    done = run(*QUICK, *METHODS, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert "AGOP-Global is above IG in mIoU" in done.stdout
    return folder


@pytest.mark.slow
def test_a_run_has_every_kind_of_mask_and_both_priors(whole):
    rows = read(whole)
    assert {row["masks"] for row in rows} == {"all_objects", "single_object", "dominant"}
    scored = {(row["masks"], row["method"], row["metric"]): row["value"] for row in rows}
    assert scored["all_objects", "agop-global", "iou"] != scored["all_objects", "agop-global@training", "iou"]
    assert ("single_object", "vanilla", "deletion") not in scored
    assert scored["all_objects", "mean-mask", "energy"] > scored["single_object", "mean-mask", "energy"]
    cell = whole / "cells" / "clevr-xai-drawn-000"
    assert (cell / "agop.safetensors").exists()
    assert (cell / "agop-training.safetensors").exists()
    assert not (cell / "training.pt").exists()


@pytest.mark.slow
def test_reports_of_a_run_have_intervals_over_samples(whole):
    found = Run(whole)
    estimate = found.estimate("clevr-xai", "drawn", "vanilla", "energy")
    row = next(r for r in found.rows if (r["masks"], r["method"], r["metric"]) == ("all_objects", "vanilla", "energy"))
    assert estimate.mean == pytest.approx(row["value"])
    assert len(estimate.values) == row["n"] == 20
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]
    text = registry.get("markdown")(found)
    assert "trained from scratch (no ImageNet weights given)" in text
    assert "200 scenes drawn offline" in text
    assert "single_object masks" in text
    assert "0.124" in text  # the paper's mIoU of vanilla
    data = json.loads(registry.get("json")(found))
    assert [table["masks"] for table in data["tables"]] == ["all_objects", "single_object", "dominant"]
    verdicts = {checked.claim: checked.verdict for checked in check(found)}
    assert verdicts["AGOP-Global is above IG in mIoU"] == "undecided"  # IG was not in this run


@pytest.mark.slow
def test_killed_after_an_epoch_it_goes_on_and_ends_with_the_same_rows(tmp_path):
    """Two epochs by a recipe of this test; the process is killed when the first checkpoint is there."""
    script = tmp_path / "go.py"
    script.write_text(
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from agop.runs.spec import RunSpec; from agop.bench.cell import run_cells\n"
        "spec = RunSpec('clevr-xai', ('clevr-xai',), ('drawn',), 1, ('vanilla', 'agop-global@training'), ('iou',),\n"
        "               masks='all_objects', epochs=3, test_images=8, options={'samples': 60})\n"
        "run_cells(spec, spec.cells(), Path(sys.argv[1]), lambda done: None)\n"
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([sys.executable, script, whole], check=True)
    process = subprocess.Popen([sys.executable, script, killed])
    checkpoint = killed / "cells" / ".clevr-xai-drawn-000.part" / "training.pt"
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert torch.load(checkpoint, weights_only=True)["epoch"] < 3
    subprocess.run([sys.executable, script, killed], check=True)
    for name in ("rows.jsonl", "convergence.jsonl", "checkpoint.safetensors", "agop-training.safetensors"):
        path = f"cells/clevr-xai-drawn-000/{name}"
        assert (killed / path).read_bytes() == (whole / path).read_bytes(), name


@pytest.mark.slow
def test_without_mask_pictures_the_ground_truths_are_scored(tmp_path):
    scenes = {index: ("mmmrr", "rrrrm")[index % 2] for index in range(20)}
    write_official(tmp_path / "release", scenes, {index: index for index in scenes})
    shutil.rmtree(tmp_path / "release" / "masks")
    done = run(*QUICK, *METHODS[:2], "--data", tmp_path / "release", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert {row["masks"] for row in read(tmp_path / "run")} == {"all_objects", "single_object"}


def test_scenes_are_told_apart_by_their_pictures_names(tmp_path):
    """Whatever index a question gives: the split must not put a picture on both sides."""
    scenes = dict.fromkeys(range(4), "mmm")
    write_official(tmp_path, scenes, {index: index % 4 for index in range(12)})
    path = tmp_path / "CLEVR-XAI_simple_questions.json"
    asked = json.loads(path.read_text())
    for place, question in enumerate(asked["questions"]):
        question["image_index"] = place
    path.write_text(json.dumps(asked))
    found = official_dataset(tmp_path, 16)
    assert len(found.scenes) == 12
    assert len(set(found.scenes)) == 4
    assert len({picture.tobytes() for picture in found.images[found.scenes == 0]}) == 1
    assert len(official_dataset(tmp_path, 16, 5).scenes) == 5


@pytest.mark.slow
def test_the_official_form_runs_too(tmp_path):
    """A miniature release with enough scenes for two sides."""
    scenes = {index: ("mmmrr", "rrrrm")[index % 2] for index in range(20)}
    write_official(tmp_path / "release", scenes, {index: index for index in scenes})
    done = run(*QUICK, *METHODS, "--data", tmp_path / "release", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    report = run("report", tmp_path / "run", "--format", "markdown").stdout
    assert "the official pictures" in report
    assert "found: 20 scenes" in report  # what the reader found, kept and dropped
    assert "clevr-xai / official" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "resnet50"], "did you mean 'resnet18'"),
        (["--full"], "give one of them"),
        (["--weights", "none.pth"], "is not a file"),
        (["--data", "."], "download CLEVR-XAI_v1.0.zip"),
        (["--method", "gradcam@layer9"], "no method is named"),
        (["--metric", "enrgy"], "did you mean 'energy'"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*QUICK[1:], *arguments, "--out", "run"])
    assert isinstance(done.exception, AGOPError)
    assert message in str(done.exception)
    assert not (tmp_path / "run").exists()
