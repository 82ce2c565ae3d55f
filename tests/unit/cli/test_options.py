"""How the commands prepare pictures when a prior is all that says something of them: real processes, real files."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import agop
from agop.cli.app import load_session
from agop.errors import AGOPWarning, InputError
from agop.pictures.preprocessing import Preprocessing
from tests.command import run

NETWORK = """
from torch import nn
def net(channels=3):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, 2))
def grey():
    return net(1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A colour and a grey network, each trained with the hook, their files, and pictures with masks."""
    folder = tmp_path_factory.mktemp("hook")
    (folder / "hooked_networks.py").write_text(NETWORK)
    code: dict = {}
    exec(NETWORK, code)
    draw = np.random.default_rng(0)
    for kind in ("pictures", "masks"):
        (folder / kind).mkdir()
        for index in range(4):
            pixels = draw.integers(0, 255, (24, 40, 3)) if kind == "pictures" else 255 * np.eye(24, 40)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{index}.png")
    for name, channels in (("net", 3), ("grey", 1)):
        torch.manual_seed(0)
        model = code[name]()
        hook = agop.AGOPTrainingHook(model, only_correct=False)
        hook.step(torch.randn(8, channels, 24, 40))
        prior = hook.finalize()
        prior.save(folder / f"{name}.prior.safetensors")
        how = Preprocessing((24, 40), (0.4,), (0.2,), gray=channels == 1)
        prior.save(folder / f"{name}.told.safetensors", preprocessing=how, classes=["cat", "dog"])
        save_file(model.state_dict(), folder / f"{name}.safetensors")
    return folder


def given(name, told="prior"):
    return (f"hooked_networks:{name}", "--weights", f"{name}.safetensors", "--prior", f"{name}.{told}.safetensors")


def explained(folder, *arguments):
    model, *options = arguments
    done = run("explain", model, "pictures", *options, "--out", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((folder / "out" / "manifest.json").read_text())


@pytest.mark.parametrize(("name", "gray"), [("net", False), ("grey", True)])
def test_size_and_gray_come_from_a_hooks_file_and_mean_and_std_are_asked_for(folder, name, gray):
    told, manifest = explained(folder, *given(name))
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.0], "std": [1.0], "gray": gray}
    assert told.count("warning:") == 1
    assert "does not say how its pictures were prepared" in told
    assert "24×40" in told
    assert "--mean and --std as in training" in told


def test_a_size_that_is_given_leaves_mean_and_std_to_ask_for_and_all_three_nothing(folder):
    told, _ = explained(folder, *given("net"), "--size", "24x40")
    assert told.count("warning:") == 1
    assert "--mean and --std as in training" in told
    told, _ = explained(folder, *given("net"), "--mean", "0.4")
    assert "--std as in training" in told
    assert "--mean" not in told
    told, manifest = explained(folder, *given("net"), "--mean", "0.4", "--std", "0.2")
    assert told == ""
    assert manifest["preprocessing"]["size"] == [24, 40]


def test_a_file_saved_with_its_preprocessing_needs_no_options(folder):
    told, manifest = explained(folder, *given("net", "told"), "--method", "vanilla", "--method", "agop-weighted")
    assert told == ""
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.4], "std": [0.2], "gray": False}


def test_evaluate_takes_the_size_from_the_prior(folder):
    model, *options = given("net")
    done = run(
        "evaluate", model, "pictures", "masks", *options, "--method", "agop-weighted", "--metric", "energy",
        "--out", "scored", folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--mean and --std as in training" in done.stderr


def test_the_app_takes_the_size_from_the_prior(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model, weights = "hooked_networks:grey", Path("grey.safetensors")
    session = load_session(model, weights, Path("grey.told.safetensors"))
    assert session.explainer.names == ("cat", "dog")
    with pytest.warns(AGOPWarning, match="as in training"):
        session = load_session(model, weights, Path("grey.prior.safetensors"))
    assert session.explainer.preprocessing == Preprocessing((24, 40), gray=True)


def test_saving_what_does_not_fit_the_prior_is_a_mistake(tmp_path):
    prior = agop.AGOP(torch.ones(3, 24, 40), 2, provenance={"classes": 2})
    for how, message in [
        (Preprocessing((40, 24)), "40×24"),
        (Preprocessing((24, 40), gray=True), "1×24×40"),
    ]:
        with pytest.raises(InputError, match=message):
            prior.save(tmp_path / "p.safetensors", preprocessing=how)
    with pytest.raises(InputError, match=r"3 names of classes.*2 classes"):
        prior.save(tmp_path / "p.safetensors", classes=["a", "b", "c"])
    assert not (tmp_path / "p.safetensors").exists()


def test_what_is_saved_is_kept_when_a_file_is_loaded_and_saved_again(tmp_path):
    prior = agop.AGOP(torch.ones(1, 8, 8), 2, provenance={"classes": 2})
    how = Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    prior.save(tmp_path / "a.safetensors", preprocessing=how, classes=["T", "L"])
    assert "data" not in prior.provenance
    again = agop.AGOP.load(tmp_path / "a.safetensors")
    again.save(tmp_path / "b.safetensors")
    data = agop.AGOP.load(tmp_path / "b.safetensors").provenance["data"]
    assert data == {"preprocessing": json.loads(json.dumps(how.to_dict())), "classes": ["T", "L"]}
    assert agop.AGOP.load(tmp_path / "b.safetensors").class_names == ("T", "L")
