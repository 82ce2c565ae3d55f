"""`agop evaluate --grid` on real files."""

import json

import numpy as np
import pytest
from PIL import Image

from agop.report.run import Run
from agop.runs.gallery import Gallery
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
