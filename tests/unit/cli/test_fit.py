"""`agop fit` warns about a model whose accuracy looks like chance."""

import numpy as np
import pytest
import torch

from agop.pictures.folders import ClassFolders
from agop.pictures.preprocessing import Preprocessing
from tests.command import run_checked
from tests.image_files import save

NETWORK = """
import torch
class Brightest(torch.nn.Module):
    '''Right for a share of the images: red says the class, green the image's place in 0 .. 1.'''
    def __init__(self):
        super().__init__()
        self.right = torch.nn.Parameter(torch.zeros(()))
    def forward(self, x):
        red, green = x[:, 0].mean((1, 2)), x[:, 1].mean((1, 2))
        label = (2 * red).round().long()
        predicted = torch.where(green < self.right, label, (label + 1) % 3)
        return torch.nn.functional.one_hot(predicted, 3) * (1 + x.mean((1, 2, 3))[:, None])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty images of three classes, and nine of them."""
    folder = tmp_path_factory.mktemp("fit")
    (folder / "chance_network.py").write_text(NETWORK)
    for label, name in enumerate(("a", "b", "c")):
        for index in range(10):
            pixels = np.full((8, 8, 3), [round(label * 127.5), round((index + 0.5) * 25.5), 0])
            save(folder / "photos" / name / f"{index}.png", pixels)
            if index in (3, 4, 9):
                save(folder / "few" / name / f"{index}.png", pixels)
    return folder


def warnings_of_fit(folder, right, *options, data="photos"):
    torch.save({"right": torch.tensor(right)}, folder / "w.pth")
    result = run_checked("fit", "chance_network:Brightest", data, "--size", "8", *options, folder=folder)
    assert "wrote prior.safetensors" in result.stdout
    return result.stderr


def test_an_accuracy_like_chance_warns(folder):
    stderr = warnings_of_fit(folder, 0.4, "--weights", "w.pth")
    assert "the model classifies 40 % of the images correctly, hardly better than chance for 3 classes" in stderr
    assert "--weights" not in stderr
    assert "are the class folders a, b, c its classes 0, 1, … in this order" in stderr


def test_missing_weights_are_suggested_as_the_cause(folder):
    (folder / "chance_network.py").write_text(NETWORK.replace("zeros(())", "full((), 0.3)"))
    assert "did you forget --weights" in warnings_of_fit(folder, 0.4)


@pytest.mark.parametrize(
    ("right", "options", "data"),
    [(0.6, (), "photos"), (0.4, ("--all-samples",), "photos"), (0.4, (), "few")],
    ids=["better", "all samples", "few images"],
)
def test_better_models_few_images_and_all_samples_do_not_warn(folder, right, options, data):
    assert warnings_of_fit(folder, right, "--weights", "w.pth", *options, data=data) == ""


@pytest.mark.parametrize("world_size", [1, 2, 4, 40])
def test_shares_of_the_ranks_hold_each_image_once_and_differ_by_at_most_one(folder, world_size):
    images = ClassFolders(folder / "photos", Preprocessing())
    shares = [images.share(rank, world_size).files for rank in range(world_size)]
    assert sorted(file for share in shares for file in share) == sorted(images.files)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
