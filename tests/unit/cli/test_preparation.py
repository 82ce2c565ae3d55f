"""What the commands print about their model's input: its preprocessing, and random weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import agop
from agop.cli.preparation import warn_if_random
from tests.command import run_checked
from tests.image_files import save, save_random

NETWORKS = """
import torch
from torch import nn
def own():
    layers = nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    return nn.Sequential(*layers)
def trained():
    model = own()
    model.load_state_dict(torch.load("w.pt"))
    return model
def new_head():
    model = trained()
    model[4] = nn.Linear(4, 3)
    return model
instance = own()
"""
HOW = ("--size", "24", "--mean", "0.4", "--std", "0.2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images with masks, networks, weights, and a prior with preprocessing."""
    folder = tmp_path_factory.mktemp("preparation")
    (folder / "prepared_networks.py").write_text(NETWORKS)
    code: dict = {}
    exec(NETWORKS, code)
    torch.save(code["instance"].state_dict(), folder / "w.pt")
    save_file(code["instance"].state_dict(), folder / "w.safetensors")
    save_random(folder / "images", "0.png", shape=(24, 24, 3))
    save(folder / "masks" / "0.png", 255 * np.eye(24))
    prior = agop.fit(code["instance"], [torch.randn(4, 3, 24, 24)], only_correct=False, progress=False)
    prior.save(folder / "p.safetensors", preprocessing=agop.Preprocessing((24, 24), (0.4,), (0.2,)))
    return folder


def explain(folder, *options, model="own"):
    return run_checked("explain", f"prepared_networks:{model}", "images", *options, folder=folder)


@pytest.mark.parametrize(
    ("options", "line", "assumed"),
    [
        (HOW, "images: 24×24 RGB, mean 0.4, std 0.2 (from options)", None),
        (("--prior", "p.safetensors"), "images: 24×24 RGB, mean 0.4, std 0.2 (from the prior)", None),
        (
            HOW[:2],
            "images: 24×24 RGB, mean 0, std 1 (size from options; mean, std assumed)",
            "assuming mean 0, std 1): pass --mean and --std as in training",
        ),
        (
            (),
            "images: 224×224 RGB, mean 0, std 1 (assumed)",
            "nothing specifies the preprocessing (assuming size 224×224, mean 0, std 1): pass --size, --mean and --std "
            "as in training",
        ),
    ],
    ids=["options", "prior", "size", "nothing"],
)
def test_explain_prints_how_images_are_prepared_and_warns_about_what_is_assumed(folder, options, line, assumed):
    result = explain(folder, *options, "--weights", "w.pt")
    assert result.stdout.splitlines()[0] == line
    if assumed is None:
        assert result.stderr == ""
    else:
        assert assumed in result.stderr
        assert result.stderr.count("warning:") == 1


def test_evaluate_and_the_app_print_the_same(folder, monkeypatch, capsys):
    arguments = ("evaluate", "prepared_networks:own", "images", "masks", "--method", "vanilla", "--metric", "energy")
    result = run_checked(*arguments, "--weights", "w.pt", folder=folder)
    assert result.stdout.startswith("images: 224×224 RGB, mean 0, std 1 (assumed)\n")
    assert "nothing specifies the preprocessing" in result.stderr
    monkeypatch.setattr("agop.app.server.serve", lambda load, *_: load())
    result = run_checked("app", "prepared_networks:own", "--weights", "w.safetensors", folder=folder)
    assert result.stdout.startswith("images: 224×224 RGB, mean 0, std 1 (assumed)\n")
    assert "nothing specifies the preprocessing" in result.stderr


@pytest.mark.parametrize(
    ("model", "random"),
    [("own", "0.weight and 3 more"), ("new_head", "4.weight and 1 more"), ("trained", None), ("instance", None)],
)
def test_a_model_with_random_weights_warns(folder, model, random):
    stderr = explain(folder, *HOW, model=model).stderr
    if random is None:
        assert stderr == ""
    else:
        assert f"prepared_networks:{model} isn't trained, it has random weights ({random}): pass trained ones" in stderr
    assert "--weights" not in explain(folder, *HOW, "--weights", "w.pt", model="own").stderr


def test_lazy_layers_have_no_weights_to_compare():
    warn_if_random("lazy:model", torch.nn.LazyLinear(2), torch.nn.LazyLinear(2))
