"""Options that commands share: preprocessing, also from a prior, and weights."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import agop
from agop.errors import InputError
from tests.command import error_of, run, run_checked
from tests.image_files import save, save_random

NETWORKS = """
from torch import nn
def rgb(channels=3):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, 2))
def gray():
    return rgb(1)
def wide():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 22 * 38, 2))
"""


WARNING = """
import warnings
from torch import nn
class Net(nn.Conv2d):
    def forward(self, x):
        warnings.warn("odd")
        return super().forward(x).mean((2, 3))
def net():
    return Net(3, 2, 1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two RGB networks and a gray one trained with the hook, their files, and images with masks.

    NAME.hook.safetensors is a prior without preprocessing, NAME.full.safetensors one with it.
    """
    folder = tmp_path_factory.mktemp("hook")
    (folder / "hooked_networks.py").write_text(NETWORKS)
    code: dict = {}
    exec(NETWORKS, code)
    for name in ("0.png", "1.png"):
        save_random(folder / "images", name, shape=(24, 40, 3))
        save(folder / "masks" / name, 255 * np.eye(24, 40))
    for name, channels in (("rgb", 3), ("gray", 1), ("wide", 3)):
        torch.manual_seed(0)
        model = code[name]()
        hook = agop.AGOPTrainingHook(model, only_correct=False)
        hook.step(torch.randn(8, channels, 24, 40))
        prior = hook.finalize()
        prior.save(folder / f"{name}.hook.safetensors")
        preprocessing = agop.Preprocessing((24, 40), (0.4,), (0.2,), gray=channels == 1)
        prior.save(folder / f"{name}.full.safetensors", preprocessing=preprocessing, classes=["cat", "dog"])
        save_file(model.state_dict(), folder / f"{name}.safetensors")
    return folder


def arguments(name, prior=None):
    model = (f"hooked_networks:{name}", "--weights", f"{name}.safetensors")
    return model if prior is None else (*model, "--prior", f"{name}.{prior}.safetensors")


def explain(folder, model, *options):
    """Result of the command, and its manifest."""
    result = run_checked("explain", model, "images", *options, "--out", "out", folder=folder)
    return result, json.loads((folder / "out" / "manifest.json").read_text())


def test_size_is_height_then_width_or_both(folder):
    for text, sides in (("24", [24, 24]), ("24x40", [24, 40]), (" 24X40 ", [24, 40]), ("24×40", [24, 40])):
        assert explain(folder, *arguments("rgb"), "--size", text)[1]["preprocessing"]["size"] == sides


@pytest.mark.parametrize("text", ["", "big", "64x", "x64", "64x96x3", "1.5", "64,96"])
def test_other_sizes_raise(folder, text):
    assert "HEIGHTxWIDTH, for example 64x96" in error_of(
        "explain", "hooked_networks:rgb", "images", "--size", text, folder=folder
    )


HOW = ("--size", "24", "--mean", "0.4", "--std", "0.2")


@pytest.mark.parametrize(
    ("prior", "options", "line", "assumed"),
    [
        (None, HOW, "24×24 RGB, mean 0.4, std 0.2 (from options)", None),
        ("full", (), "24×40 RGB, mean 0.4, std 0.2 (from the prior)", None),
        (None, HOW[:2], "24×24 RGB, mean 0, std 1 (size from options; mean, std assumed)",
         "assuming mean 0, std 1): pass --mean and --std as in training"),
        (None, (), "224×224 RGB, mean 0, std 1 (assumed)",
         "nothing specifies the preprocessing (assuming size 224×224, mean 0, std 1): pass --size, --mean and --std as "
         "in training"),
        ("hook", (), "24×40 RGB, mean 0, std 1 (size from the prior; mean, std assumed)",
         "the prior doesn't record its preprocessing (assuming mean 0, std 1): pass --mean and --std as in training"),
        ("hook", HOW[2:4], "24×40 RGB, mean 0.4, std 1 (size from the prior; mean from options; std assumed)",
         "pass --std as in training"),
        ("hook", HOW[2:], "24×40 RGB, mean 0.4, std 0.2 (size from the prior; mean, std from options)", None),
    ],
)  # fmt: skip
def test_how_images_are_prepared_is_printed_and_what_is_assumed_warns(folder, prior, options, line, assumed):
    result, _ = explain(folder, *arguments("rgb", prior), *options)
    assert result.stdout.splitlines()[0] == f"images: {line}"
    if assumed is None:
        assert result.stderr == ""
    else:
        assert assumed in result.stderr
        assert result.stderr.count("warning:") == 1


def test_channels_come_from_the_prior(folder):
    _, manifest = explain(folder, *arguments("gray", "hook"))
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.0], "std": [1.0], "gray": True}


def test_options_that_differ_from_the_recorded_preprocessing_warn(folder):
    result, manifest = explain(folder, *arguments("gray", "full"), "--mean", "0.3")
    assert "other preprocessing (mean [0.4], now [0.3]): pass the same options" in result.stderr
    assert manifest["preprocessing"]["mean"] == [0.3]


def test_resize_is_the_shorter_side_before_the_crop(folder):
    result, manifest = explain(folder, *arguments("rgb", "full"), "--resize", "30", "--force")
    assert result.stdout.startswith("images: 24×40 RGB cut from 30, mean 0.4, std 0.2 (from the prior)")
    assert "other preprocessing (resize None, now 30)" in result.stderr
    assert manifest["preprocessing"]["resize"] == 30
    _, manifest = explain(folder, *arguments("rgb"), *HOW, "--resize", "30", "--method", "input")
    how = agop.Preprocessing((24, 24), (0.4,), (0.2,), resize=30)
    expected = how.tensor(how.picture(folder / "images" / "0.png")).abs().sum(0)
    torch.testing.assert_close(load_file(folder / "out" / "maps.safetensors")["input"][0], expected)


def test_a_warning_is_printed_once_not_per_batch(folder):
    (folder / "warning.py").write_text(WARNING)
    result, _ = explain(folder, "warning:net", *HOW, "--batch-size", "1")
    assert result.stderr.count("warning: odd") == 1


def test_evaluate_and_the_app_prepare_images_in_the_same_way(folder, monkeypatch):
    model, *options = arguments("rgb", "hook")
    scores = ("--method", "agop-weighted", "--metric", "energy", "--out", "scored")
    monkeypatch.setattr("agop.app.serve", lambda load, *_: load())
    for command in (("evaluate", model, "images", "masks", *options, *scores), ("app", model, *options)):
        result = run_checked(*command, folder=folder)
        assert result.stdout.startswith("images: 24×40 RGB, mean 0, std 1 (size from the prior; mean, std assumed)\n")
        assert "--mean and --std as in training" in result.stderr


COMMANDS = {
    "explain": ("images",),
    "evaluate": ("images", "masks", "--metric", "energy"),
    "sanity": ("images", "--steps", "1"),
    "audit": ("classes", "--per-class", "20"),
    "app": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_prior_of_another_architecture_raises_before_it_is_used_and_force_goes_on(folder, command, monkeypatch):
    monkeypatch.setattr("agop.app.serve", lambda load, *_: load())
    for name in ("a/0.png", "a/1.png", "b/0.png"):
        save_random(folder / "classes", name, shape=(24, 40, 3))
    model, *weights = arguments("wide")
    own = ("--method", "vanilla") if command in ("explain", "evaluate", "sanity") else ()
    out = () if command in ("sanity", "app") else ("--out", f"other-{command}")
    line = (command, model, *COMMANDS[command], *weights, *own, *out, "--prior", "rgb.full.safetensors")
    result = run(*line, folder=folder)
    assert result.returncode == 2
    assert result.stdout == ""  # how images are prepared isn't decided
    assert "rgb.full.safetensors comes from another model" in result.stderr
    assert "or go on with --force" in result.stderr
    assert not (folder / f"other-{command}").exists()
    forced = run(*line, "--force", folder=folder)
    assert "the prior comes from another model" in forced.stderr
    assert "images: 24×40 RGB, mean 0.4, std 0.2 (from the prior)" in forced.stdout


def test_a_prior_of_other_weights_warns_for_every_method(folder):
    result, _ = explain(folder, "hooked_networks:rgb", "--prior", "rgb.full.safetensors", "--method", "vanilla")
    assert result.stderr.count("the prior comes from a model with other weights") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preprocessing": agop.Preprocessing((40, 24))}, "40×24"),
        ({"preprocessing": agop.Preprocessing((24, 40), gray=True)}, "1×24×40"),
        ({"classes": ["a", "b", "c"]}, r"3 .*2 classes"),
    ],
)
def test_preprocessing_or_names_that_do_not_fit_the_prior_cannot_be_saved(folder, tmp_path, change, message):
    prior = agop.AGOP.load(folder / "rgb.hook.safetensors")
    with pytest.raises(InputError, match=message):
        prior.save(tmp_path / "p.safetensors", **change)
    assert not (tmp_path / "p.safetensors").exists()


def test_recorded_preprocessing_survives_loading_and_saving(folder):
    agop.AGOP.load(folder / "rgb.full.safetensors").save(folder / "rgb.again.safetensors")
    result, manifest = explain(folder, *arguments("rgb", "again"))
    assert result.stderr == ""
    assert manifest["preprocessing"] == {"size": [24, 40], "mean": [0.4], "std": [0.2], "gray": False}
    assert manifest["classes"] == ["cat", "dog"]


def test_a_model_without_weights_warns_once_and_is_built_once(folder):
    (folder / "counting.py").write_text(f"{NETWORKS}\ndef network():\n    print('built')\n    return rgb()\n")
    result, _ = explain(folder, "counting:network", *HOW)
    assert "counting:network has random weights, unless it loads trained ones itself: pass them" in result.stderr
    assert result.stderr.count("warning:") == 1
    assert result.stdout.count("built") == 1
    for name in ("a/0.png", "b/0.png"):
        save_random(folder / "two", name, shape=(24, 24, 3))
    compared = ("audit", "counting:network", "two", *HOW, "--against-weights", "rgb.safetensors", "--out", "compared")
    assert run(*compared, folder=folder).stdout.count("built") == 1
    assert "random weights" not in explain(folder, "counting:network", "--weights", "rgb.safetensors", *HOW)[0].stderr
