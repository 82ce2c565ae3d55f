"""`agop fit`: what it checks before its pass, and what it prints."""

import numpy as np
import pytest
import torch

import agop
from tests.command import error_of, run_checked
from tests.image_files import save, save_random

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


HOW = ("--size", "8", "--mean", "0", "--std", "1")


def arguments(folder, right, *options, data="photos", how=HOW):
    torch.save({"right": torch.tensor(right)}, folder / "w.pth")
    return ("fit", "chance_network:Brightest", data, *how, "--weights", "w.pth", "--out", "p.safetensors", *options)


def fit(folder, *options, **choices):
    """Result of the command, and the AGOP that it wrote."""
    result = run_checked(*arguments(folder, *options, **choices), folder=folder)
    return result, agop.AGOP.load(folder / "p.safetensors")


def test_an_accuracy_like_chance_raises_and_with_force_warns(folder):
    """By a binomial test against the largest of three classes: 40 % of 30 images is chance, 60 % isn't."""
    message = error_of(*arguments(folder, 0.3), folder=folder)
    assert "the model classifies 30 % of 30 images correctly, hardly better than chance for 3 classes" in message
    assert "are the class folders a, b, c its classes 0, 1, … in this order" in message
    assert "--weights" not in message
    assert "(--force fits anyway)" in message
    assert not (folder / "p.safetensors").exists()
    result, prior = fit(folder, 0.3, "--force")
    assert "accuracy: 30.0 %" in result.stdout
    assert result.stderr.count("hardly better than chance") == 1
    assert prior.count == 9
    assert "hardly better than chance" in error_of(*arguments(folder, 0.4), folder=folder)
    assert "hardly better than chance" not in fit(folder, 0.6)[0].stderr


def test_missing_weights_are_suggested_as_the_cause(folder):
    message = error_of("fit", "chance_network:Brightest", "photos", *HOW, folder=folder)
    assert "did you forget --weights" in message


@pytest.mark.parametrize(
    ("right", "options", "data", "line"),
    [
        (
            0.6,
            (),
            "photos",
            "18 of 30 images counted, 12 are misclassified (--all-samples counts them, too); accuracy: 60.0 %",
        ),
        (0.3, ("--all-samples",), "photos", "30 of 30 images counted; accuracy: 30.0 %"),
        (
            0.4,
            (),
            "few",
            "3 of 9 images counted, 6 are misclassified (--all-samples counts them, too); accuracy: 33.3 %",
        ),
    ],
    ids=["better", "all samples", "few images"],
)
def test_better_models_all_samples_and_few_images_are_fitted_and_the_accuracy_is_printed(
    folder, right, options, data, line
):
    result, prior = fit(folder, right, *options, data=data)
    assert line in result.stdout
    assert f"{prior.count} samples were counted, which is few: use 100 or more" in result.stderr
    assert result.stderr.count("warning:") == 1


def test_a_folder_of_class_folders_too_high_raises(folder):
    for split in ("train", "val"):
        for name in "abc":
            save(folder / "high" / split / name / "0.png", np.zeros((8, 8, 3)))
    message = error_of(*arguments(folder, 1.0, data="high"), folder=folder)
    assert "high has 2 class folders (train, val), the model 3 classes: did you mean high/train or high/val" in message
    save(folder / "low" / "a" / "0.png", np.zeros((8, 8, 3)))
    message = error_of(*arguments(folder, 1.0, data="low"), folder=folder)
    assert "low has 1 class folder (a), the model 3 classes: pass a folder with one folder per class" in message
    result, _ = fit(folder, 1.0, "--force", data="low")
    assert "low has 1 class folder (a), the model 3 classes" in result.stderr


def test_images_without_class_folders_are_fitted_if_all_samples_count(folder):
    save_random(folder / "loose", "1.png", "2.png", "deep/3.png", shape=(8, 8, 3))
    message = error_of(*arguments(folder, 1.0, data="photos/a"), folder=folder)
    assert "photos/a has no images in class folders" in message
    assert "pass --all-samples to count images without labels" in message
    result, prior = fit(folder, 1.0, "--all-samples", data="loose")
    assert "3 of 3 images counted; accuracy: unknown, there are no labels" in result.stdout
    assert (prior.count, prior.class_names, prior.provenance.accuracy) == (3, (), None)


def test_small_images_are_enlarged_only_on_request(folder):
    message = error_of(*arguments(folder, 0.6, data="few", how=HOW[2:]), folder=folder)
    assert "the images are about 8×8, and would be enlarged to 224×224" in message
    assert "--size 8x8 or --size 224x224" in message
    assert "enlarged" not in fit(folder, 0.6, data="few", how=("--size", "16", *HOW[2:]))[0].stderr
    result, prior = fit(folder, 0.6, "--force", data="few", how=HOW[2:])
    assert "would be enlarged to 224×224" in result.stderr
    assert prior.diagonal.shape == (3, 224, 224)


def test_one_diagonal_per_class_is_kept_by_default_and_the_concentration_is_printed(folder):
    result, prior = fit(folder, 0.6)
    assert prior.class_counts.tolist() == [6, 6, 6]
    assert "% of diag(M) in " in result.stdout
    assert fit(folder, 0.6, "--no-per-class")[1].class_diagonals is None


def test_rank_and_output_are_recorded_and_the_sketch_is_printed_by_fit_and_show(folder):
    result, prior = fit(folder, 1.0, "--rank", "2", "--output", "log_odds")
    assert prior.sketch.shape == (2, 3, 8, 8)
    assert prior.provenance.output == "log_odds"
    line = f"2 rows with {100 * (1 - prior.residual_share):.1f} % of tr(M); tr(r)/tr(M) = {prior.residual_share:.3g}"
    assert f"sketch of {line}" in result.stdout
    shown = run_checked("show", "p.safetensors", folder=folder).stdout
    assert line in shown
    assert "gradients of log_odds" in shown


def test_large_diagonals_per_class_are_not_kept_by_default(folder):
    (folder / "many_classes.py").write_text(
        "from torch import nn\n"
        "def model():\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1400, bias=False))\n"
    )
    options = ("--size", "64", *HOW[2:], "--all-samples", "--out", "many.safetensors")
    result = run_checked("fit", "many_classes:model", "photos/a", *options, folder=folder)
    assert "those of 1,400 classes take 131 MiB (--per-class keeps them)" in result.stdout
    assert agop.AGOP.load(folder / "many.safetensors").class_diagonals is None
