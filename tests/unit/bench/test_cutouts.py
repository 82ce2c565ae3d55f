"""`agop bench cutouts`: objects of known outline on photographs, explained by a network with weights set by hand."""

import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.command import error_of, run_checked

NETWORK = """
import torch
from torch import nn


class Colours(nn.Module):
    \"\"\"Logits of red, blue and neither. Maps of 14×14 at stride 8 for images of 112×112.\"\"\"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Conv2d(3, 2, 8, stride=8), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU())
        self.head = nn.Linear(2, 3)
        with torch.no_grad():
            kernel = torch.tensor([[1.0, -1.0, -1.0], [-1.0, -1.0, 1.0]]) / 64
            self.first[0].weight.copy_(kernel[:, :, None, None].expand(2, 3, 8, 8))
            self.first[0].bias.fill_(-2.0)
            self.last[0].weight.copy_(torch.eye(2)[:, :, None, None])
            self.last[0].bias.zero_()
            self.head.weight.copy_(torch.tensor([[60.0, 0.0], [0.0, 60.0], [0.0, 0.0]]))
            self.head.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))

    def forward(self, x):
        return self.head(self.last(self.first(x)).mean((2, 3)))


def blind():
    model = Colours()
    nn.init.zeros_(model.head.weight)
    return model
"""
LINES = "file,class\nred.png,0\nblue.png,1\n"


@pytest.fixture
def folder(tmp_path):
    """A red disc and a blue square with transparency, grey photographs, and the network."""
    (tmp_path / "objects").mkdir(), (tmp_path / "photos").mkdir()
    for name, colour, shape in (("red", (255, 0, 0, 255), "ellipse"), ("blue", (0, 0, 255, 255), "rectangle")):
        picture = Image.new("RGBA", (60, 40))
        getattr(ImageDraw.Draw(picture), shape)((8, 4, 50, 36), fill=colour)
        picture.save(tmp_path / "objects" / f"{name}.png")
    for seed in range(3):
        grey = np.random.default_rng(seed).integers(90, 160, (50, 70, 1), dtype=np.uint8).repeat(3, axis=2)
        Image.fromarray(grey).save(tmp_path / "photos" / f"{seed}.png")
    (tmp_path / "objects" / "objects.csv").write_text(LINES)
    (tmp_path / "colours.py").write_text(NETWORK)
    return tmp_path


def bench(folder, command=run_checked, network="colours:Colours"):
    return command(
        "bench", "cutouts", "--objects", "objects", "--photos", "photos", "--network", network, "--size", "112",
        "--per-object", "3", "--pairs", "4", "--method", "gradcam", "--method", "agop", "--method", "random",
        "--method", "sobel", "--out", "out", folder=folder,
    )  # fmt: skip


def test_maps_of_a_network_that_sees_colours_lie_on_its_objects_and_on_the_explained_one_of_two(folder):
    output = bench(folder).stdout
    assert "6 images of 2 objects, and 4 pairs" in output
    assert "average_precision: agop ÷ gradcam, the best of the paper's methods: " in output
    means = json.loads((folder / "out" / "cutouts.json").read_text())["means"]
    one, two = means["one object"], means["two objects"]
    assert one["agop"]["average_precision"] > 0.8 > 0.4 > one["random"]["average_precision"]
    assert one["agop"]["pointing_game"] == 1
    assert two["agop"]["share"] > 0.95
    assert two["random"]["share"] == pytest.approx(0.5, abs=0.1)
    assert "vanilla" not in one
    for name in ("one", "two"):
        run_checked("report", f"out/{name}", folder=folder)
    assert bench(folder).stdout == output  # the same seed, the same scores


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("file,class\nred.png,0\n", "fewer than 2 objects of different classes"),
        ("file,class\nred.png,zero\nblue.png,1\n", "give class numbers"),
        ("file,class\n../photos/0.png,0\nblue.png,1\n", "transparent background"),
        ("file,class\nmissing.png,0\nblue.png,1\n", "missing.png"),
    ],
)
def test_errors_name_the_line_of_the_csv_file(folder, lines, message):
    (folder / "objects" / "objects.csv").write_text(lines)
    assert message in bench(folder, error_of)


def test_objects_that_the_network_does_not_recognise_and_missing_options_are_errors(folder):
    assert "recognises none of the objects" in bench(folder, error_of, network="colours:blind")
    (folder / "objects" / "objects.csv").unlink()
    assert "write lines file,class" in bench(folder, error_of)
    options = ("--photos", "photos", "--network", "colours:Colours")
    assert "pass --objects" in error_of("bench", "cutouts", *options, folder=folder)
