"""Options that commands share: sizes, and preprocessing from a prior."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import agop
from agop.cli.app import load_session
from agop.cli.options import height_and_width, output_of
from agop.errors import AGOPWarning, InputError
from agop.pictures.preprocessing import Preprocessing
from agop.statistic.provenance import Provenance
from tests.command import run_checked
from tests.image_files import save, save_random

NETWORKS = """
from torch import nn
def rgb(channels=3):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, 2))
def gray():
    return rgb(1)
"""


@pytest.mark.parametrize(
    ("text", "sides"), [("224", (224, 224)), ("64x96", (64, 96)), (" 64X96 ", (64, 96)), ("64×96", (64, 96))]
)
def test_size_is_height_then_width(text, sides):
    assert height_and_width(text) == sides


@pytest.mark.parametrize(("contrast", "expected"), [(True, "contrast"), (False, "predicted"), (None, None)])
def test_the_output_is_the_option_or_that_of_the_prior(contrast, expected):
    for recorded in ("predicted", "contrast"):
        prior = agop.AGOP(torch.ones(1, 2, 2), 1, provenance=Provenance(options={"output": recorded}))
        assert output_of(contrast, prior) == (expected or recorded)
    assert output_of(contrast, None) == (expected or "predicted")


@pytest.mark.parametrize("text", ["", "big", "64x", "x64", "64x96x3", "-8", "1.5", "64,96"])
def test_other_sizes_raise(text):
    with pytest.raises(InputError, match="HEIGHTxWIDTH, for example 64x96"):
        height_and_width(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An RGB and a gray network trained with the hook, their files, and images with masks.

    NAME.hook.safetensors is a prior without preprocessing, NAME.full.safetensors one with it.
    """
    folder = tmp_path_factory.mktemp("hook")
    (folder / "hooked_networks.py").write_text(NETWORKS)
    code: dict = {}
    exec(NETWORKS, code)
    for name in ("0.png", "1.png"):
        save_random(folder / "images", name, shape=(24, 40, 3))
        save(folder / "masks" / name, 255 * np.eye(24, 40))
    for name, channels in (("rgb", 3), ("gray", 1)):
        torch.manual_seed(0)
        model = code[name]()
        hook = agop.AGOPTrainingHook(model, only_correct=False)
        hook.step(torch.randn(8, channels, 24, 40))
        prior = hook.finalize()
        prior.save(folder / f"{name}.hook.safetensors")
        preprocessing = Preprocessing((24, 40), (0.4,), (0.2,), gray=channels == 1)
        prior.save(folder / f"{name}.full.safetensors", preprocessing=preprocessing, classes=["cat", "dog"])
        save_file(model.state_dict(), folder / f"{name}.safetensors")
    return folder


def arguments(name, prior="hook"):
    return (f"hooked_networks:{name}", "--weights", f"{name}.safetensors", "--prior", f"{name}.{prior}.safetensors")


def explain(folder, model, *options):
    """Standard error of the command, and its manifest."""
    result = run_checked("explain", model, "images", *options, "--out", "out", folder=folder)
    return result.stderr, json.loads((folder / "out" / "manifest.json").read_text())


@pytest.mark.parametrize(("name", "gray"), [("rgb", False), ("gray", True)])
def test_size_and_channels_come_from_the_prior_and_missing_mean_and_std_warn(folder, name, gray):
    errors, manifest = explain(folder, *arguments(name))
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.0], "std": [1.0], "gray": gray}
    assert errors.count("warning:") == 1
    assert "the prior doesn't record its preprocessing (assuming mean 0, std 1)" in errors
    assert "pass --mean and --std as in training" in errors


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--size", "24x40"), "--mean and --std"),
        (("--mean", "0.4"), "pass --std"),
        (("--mean", "0.4", "--std", "0.2"), None),
    ],
)
def test_only_missing_options_are_asked_for(folder, options, missing):
    errors, manifest = explain(folder, *arguments("rgb"), *options)
    assert manifest["preprocessing"]["size"] == [24, 40]
    if missing:
        assert errors.count("warning:") == 1
        assert f"{missing} as in training" in errors
    else:
        assert errors == ""


def test_options_that_differ_from_the_recorded_preprocessing_warn(folder):
    errors, manifest = explain(folder, *arguments("gray", "full"), "--mean", "0.3")
    assert "other preprocessing (mean [0.4], now [0.3]): pass the same options" in errors
    assert manifest["preprocessing"]["mean"] == [0.3]


def test_evaluate_takes_the_size_from_the_prior(folder):
    model, *options = (*arguments("rgb"), "--method", "agop-weighted", "--metric", "energy", "--out", "scored")
    result = run_checked("evaluate", model, "images", "masks", *options, folder=folder)
    assert "--mean and --std as in training" in result.stderr


def test_app_takes_size_and_names_from_the_prior(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model, weights = "hooked_networks:gray", Path("gray.safetensors")
    session = load_session(model, weights, Path("gray.full.safetensors"))
    assert session.explainer.names == ("cat", "dog")
    with pytest.warns(AGOPWarning, match="as in training"):
        session = load_session(model, weights, Path("gray.hook.safetensors"))
    assert session.explainer.preprocessing == Preprocessing((24, 40), gray=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preprocessing": Preprocessing((40, 24))}, "40×24"),
        ({"preprocessing": Preprocessing((24, 40), gray=True)}, "1×24×40"),
        ({"classes": ["a", "b", "c"]}, r"3 .*2 classes"),
    ],
)
def test_preprocessing_or_names_that_do_not_fit_the_prior_cannot_be_saved(folder, tmp_path, change, message):
    prior = agop.AGOP.load(folder / "rgb.hook.safetensors")
    with pytest.raises(InputError, match=message):
        prior.save(tmp_path / "p.safetensors", **change)
    assert not (tmp_path / "p.safetensors").exists()


def test_recorded_preprocessing_survives_loading_and_saving_and_needs_no_options(folder):
    agop.AGOP.load(folder / "rgb.full.safetensors").save(folder / "rgb.again.safetensors")
    assert agop.AGOP.load(folder / "rgb.again.safetensors").class_names == ("cat", "dog")
    errors, manifest = explain(folder, *arguments("rgb", "again"), "--method", "vanilla", "--method", "agop-weighted")
    assert errors == ""
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.4], "std": [0.2], "gray": False}
