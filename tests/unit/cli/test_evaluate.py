"""`agop evaluate` on real files, with masks and on grids."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from agop.bench.scenarios import xai_tris
from agop.report.folder import Gallery
from agop.report.run import Run
from tests.command import error_of, run_checked
from tests.image_files import save

NETWORKS = """
import torch
from torch import nn

class Colours(nn.Module):
    \"\"\"Classes black, blue, green and red: the energy of each channel, and little of all.\"\"\"
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
    def forward(self, x):
        red, green, blue = (self.scale * x).square().sum((2, 3)).unbind(1)
        return torch.stack([0 * red + 8, blue, green, red], dim=1)

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
"""
CLASSES = ("black", "blue", "green", "red")
OPTIONS = ("--size", "8", "--mean", "0", "--std", "1", "--method", "vanilla", "--method", "sobel", "--out", "scores")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three images of each of four classes, with masks. Each has a square of 5×5 pixels in the colour of its class."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "colours.py").write_text(NETWORKS)
    for channel, name in enumerate(CLASSES, start=-1):
        for number in range(3):
            image, mask = np.zeros((8, 8, 3)), np.zeros((8, 8))
            mask[number : number + 5, number : number + 5] = 255
            if channel >= 0:
                image[..., 2 - channel] = mask
            save(folder / f"images/{name}/{number}.png", image)
            save(folder / f"masks/{name}/{number}.png", mask)
    save(folder / "flat/1.png", np.zeros((8, 8, 3)))
    return folder


def evaluate(folder, *arguments):
    return run_checked("evaluate", "colours:Colours", *arguments, "--grid", *OPTIONS, folder=folder).stdout


def test_grid_without_masks_prints_a_table_and_writes_a_run(folder):
    output = evaluate(folder, "images")
    assert "means over grids (N = 3) with 95 % intervals" in output
    assert "3 grids of 12 images; 12 of 12 images are classified correctly with P ≥ 0.9" in output
    assert "vanilla: 3 of 12 maps have no score (map is zero everywhere: 3)" in output
    assert "In short: By Energy-GT, vanilla scores Energy-GT 1.00, with no other method to compare" in output
    run = Run(folder / "scores")
    assert run.kinds == ["grid cell"]
    assert run.estimate("images", "given", "vanilla", "energy").mean == 1
    assert run.estimate("images", "given", "sobel", "energy").mean == pytest.approx(0.25)
    about = json.loads((folder / "scores" / "about.json").read_text())
    assert about["command"].startswith("agop evaluate colours:Colours images --grid")
    assert about["classes"] == {"images": list(CLASSES)}
    assert [name.partition(",")[0] for name in about["samples"]["images"]] == ["grid 1", "grid 2", "grid 3"]
    report = run_checked("report", "scores", "--format", "markdown", folder=folder).stdout
    assert "## images / given, grid cell masks" in report
    assert "0.25 for a map that doesn't depend on the class" in report


def test_masks_add_average_precision_and_the_gallery_has_original_colours(folder):
    output = evaluate(folder, "images", "masks", "--grids", "2", "--confidence", "0.5")
    assert "(N = 2)" in output
    assert "P ≥ 0.5" in output
    assert Run(folder / "scores").estimate("images", "given", "vanilla", "average_precision", "grid object").mean == 1
    gallery = Gallery.load(folder / "scores" / "cells" / "images-given-000")
    files = [np.asarray(Image.open(path)) for path in (folder / "images").rglob("*.png")]
    cells = [gallery.pictures[0][r : r + 8, c : c + 8] for r in (0, 8) for c in (0, 8)]
    assert all(any(np.array_equal(cell, file) for file in files) for cell in cells)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["colours:Colours", "images"], "masks are missing: pass a folder of masks after the images, or --grid"),
        (["colours:Colours", "images", "masks", "--grids", "3"], "--grids has no effect without --grid"),
        (["colours:Colours", "images", "masks", "--confidence", "0"], "--confidence has no effect without --grid"),
        (["colours:Colours", "images", "--grid", "--metric", "iou"], "--metric has no effect with --grid"),
        (["colours:Colours", "flat", "--grid"], "--grid needs the class of each image: put the images in"),
        (["colours:fixed", "images", "--grid"], "the network can't take 16×16 images"),
        (["colours:Colours", "images", "--grid", "--first", "4"], "a grid has four classes, the labels have only 2"),
    ],
)
def test_mistakes_are_one_line(folder, arguments, message):
    assert message in error_of("evaluate", *arguments, *OPTIONS, folder=folder)


# With masks

WEIGHTS = Path(agop.__file__).parent / "app" / "example" / "network.safetensors"
MODEL = ("agop.bench:CNN8by8", "--weights", WEIGHTS, "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Folders of sixty images with their masks, and a prior."""
    folder, (_, _, test) = tmp_path_factory.mktemp("masked"), xai_tris("linear")
    for index in range(60):
        name = f"class{int(test.labels[index])}/{index:03d}.png"
        save(folder / "images" / name, (test.images[index, 0] * 0.5 + 0.5) * 255)
        save(folder / "masks" / name, test.masks[index] * 255)
    run_checked("fit", MODEL[0], "images", *MODEL[1:], folder=folder)
    return folder


def test_images_with_masks_are_scored_and_a_run_is_written(masked):
    result = run_checked(
        "evaluate", MODEL[0], "images", "masks", *MODEL[1:], "--prior", "prior.safetensors", "--method", "vanilla",
        "--method", "agop-global", "--method", "expected-gradients", "--references", "images", "--metric", "energy",
        "--out", "evaluated", folder=masked,
    )  # fmt: skip
    assert "page: agop report evaluated" in result.stdout
    assert "In short: " in result.stdout
    assert re.search(r"^mean-mask +0\.\d{3} \[0\.\d{3}, ", result.stdout, re.MULTILINE)
    rows = [json.loads(line) for line in (masked / "evaluated" / "rows.jsonl").read_text().splitlines()]
    energy = {row["method"]: row["value"] for row in rows if row["metric"] == "energy"}
    assert energy["expected-gradients"] > 0
    files = sorted((masked / "masks").rglob("*.png"))
    prior = agop.AGOP.load(masked / "prior.safetensors")
    masks = torch.stack([torch.from_numpy(np.array(Image.open(path)) > 0) for path in files])
    expected = agop.metrics.energy(prior.map.expand(len(masks), 8, 8), masks).mean()
    assert energy["agop-global"] == pytest.approx(float(expected), abs=1e-6)
    assert any(row["metric"] == "accuracy" and row["value"] > 0.5 for row in rows)
    about = json.loads((masked / "evaluated" / "about.json").read_text())
    assert about["classes"] == {"images": ["class0", "class1"]}
    assert about["command"].startswith("agop evaluate agop.bench:CNN8by8 images masks")
    # The gallery has images of both classes, with their names.
    gallery, names = Gallery.load(masked / "evaluated" / "cells" / "images-given-000"), about["samples"]["images"]
    assert len(names) == len(gallery.pictures) == 12
    assert [int(name[len("class")]) for name in names] == gallery.labels.tolist()
    assert set(gallery.labels.tolist()) == {0, 1}
    for name, picture in zip(names, gallery.pictures, strict=True):
        file = np.asarray(Image.open(masked / "images" / name)).astype(int)
        assert np.abs(file - picture[..., 0]).max() <= 1


def accuracy_of(masked, *options):
    """Accuracy that `agop evaluate` reports for some images of class 1, with the folder of class 0 removed."""
    arguments = (MODEL[0], "part", "masks", *MODEL[1:], "--method", "random", "--metric", "energy", "--no-controls")
    output = run_checked("evaluate", *arguments, *options, "--out", "part-scores", folder=masked).stdout
    assert "mean-mask" not in output
    return Run(masked / "part-scores").estimate("part", "given", "model", "accuracy").mean


def test_folder_of_a_missing_class_does_not_shift_the_others(masked):
    (masked / "names.txt").write_text("class0\nclass1\n")
    (masked / "reversed.txt").write_text("class1\nclass0\n")
    shutil.copytree(masked / "images" / "class1", masked / "part" / "class1")
    message = "the model has 2 classes, but the images have folders for 1 (class1): pass --names FILE"
    assert message in error_of("evaluate", MODEL[0], "part", "masks", *MODEL[1:], folder=masked)
    rejected = error_of("fit", MODEL[0], "part", *MODEL[1:], folder=masked)
    assert "part has 1 class folder (class1), the model 2 classes" in rejected
    right = accuracy_of(masked, "--names", "names.txt")
    assert right > 0.5
    assert accuracy_of(masked, "--prior", "prior.safetensors") == right
    assert accuracy_of(masked, "--prior", "prior.safetensors", "--names", "reversed.txt") == pytest.approx(1 - right)
    arguments = ("part", *MODEL[1:], "--names", "names.txt", "--out", "part.safetensors")
    counted = run_checked("fit", MODEL[0], *arguments, folder=masked).stdout
    count = len(list((masked / "part").rglob("*.png")))
    assert f"{round(right * count)} of {count} images counted" in counted
    assert agop.AGOP.load(masked / "part.safetensors").class_names == ("class0", "class1")
