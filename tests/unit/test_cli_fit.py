"""`agop fit` says when a model is right only as by chance: real processes, real files."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

NETWORK = """
import torch
class Brightest(torch.nn.Module):
    '''Right for the share of pictures that its weight says: the brightness of a picture is its place, 0 to 1.'''
    def __init__(self):
        super().__init__()
        self.right = torch.nn.Parameter(torch.zeros(()))
    def forward(self, x):
        red, green = x[:, 0].mean((1, 2)), x[:, 1].mean((1, 2))
        label = (2 * red).round().long()
        told = torch.where(green < self.right, label, (label + 1) % 3)
        return torch.nn.functional.one_hot(told, 3) * (1 + x.mean((1, 2, 3))[:, None])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    (folder / "chance_network.py").write_text(NETWORK)
    for label, name in enumerate(("a", "b", "c")):
        for index in range(10):
            pixels = np.zeros((8, 8, 3), dtype=np.uint8)
            pixels[..., 0], pixels[..., 1] = round(label * 127.5), round((index + 0.5) * 25.5)
            (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{index}.png")
    for name in ("a", "b", "c"):
        (folder / "few" / name).mkdir(parents=True)
        for index in (3, 4, 9):
            (folder / "few" / name / f"{index}.png").symlink_to(folder / "photos" / name / f"{index}.png")
    return folder


def fitted(folder, right, *options, data="photos"):
    torch.save({"right": torch.tensor(right)}, folder / "w.pth")
    done = subprocess.run(
        [sys.executable, "-m", "agop", "fit", "chance_network:Brightest", data, "--size", "8", *options],
        cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "wrote prior.safetensors" in done.stdout
    return done.stderr


def test_a_model_that_is_right_as_by_chance_is_asked_after_its_weights(folder):
    told = fitted(folder, 0.4, "--weights", "w.pth")
    assert "the model is right on 40 % of the pictures of 3 classes" in told
    assert "--weights" not in told
    assert "do the class folders a, b, c stand" in told
    (folder / "chance_network.py").write_text(NETWORK.replace("zeros(())", "full((), 0.3)"))
    assert "were its weights given (--weights)" in fitted(folder, 0.4)


def test_a_model_that_is_better_or_few_pictures_or_wrong_ones_counted_are_no_reason(folder):
    assert fitted(folder, 0.6, "--weights", "w.pth") == ""
    assert fitted(folder, 0.4, "--weights", "w.pth", "--all-samples") == ""
    assert fitted(folder, 0.4, "--weights", "w.pth", data="few") == ""
