"""Commands on real files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import agop
from agop.bench.scenarios import xai_tris
from tests.command import error_of, run, run_checked
from tests.image_files import save

WEIGHTS = Path(agop.__file__).parent / "app" / "example" / "network.safetensors"
MODEL = ("agop.bench:CNN8by8", "--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")
EXITS_LATER = """
import sys, torch
def make():
    sys.exit("usage: train.py")
class Forward(torch.nn.Module):
    def forward(self, x):
        sys.exit(3)
"""
HOW = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of two classes in their folders, and weights of a network trained on them."""
    folder = tmp_path_factory.mktemp("cli")
    train, _, _ = xai_tris("linear")
    torch.save(load_file(WEIGHTS), folder / "w.pt")
    for index in range(60):
        path = folder / "data" / f"class{int(train.labels[index])}" / f"{index:03d}.png"
        save(path, (train.images[index, 0] * 0.5 + 0.5) * 255)
    (folder / "raises.py").write_text("def make():\n    1 / 0\ndef needs(x):\n    pass\n")
    (folder / "broken_syntax.py").write_text("def make(:\n")
    (folder / "needs_package.py").write_text("import no_such_package\n")
    (folder / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "exits_later.py").write_text(EXITS_LATER)
    assert "of 60" in run_checked("fit", MODEL[0], "data", *MODEL[1:], folder=folder).stdout
    return folder


def training_data(folder):
    """Images (N,1,8,8) and labels (N,) of the class folders."""
    files = sorted((folder / "data").rglob("*.png"))
    labels = torch.tensor([int(path.parent.name[-1]) for path in files])
    return torch.stack([HOW.tensor(HOW.picture(path)) for path in files]), labels


def map_of(folder, method, *prior, **options):
    """What agop.explain returns for data/class1/001.png."""
    image = HOW.tensor(HOW.picture(folder / "data/class1/001.png"))[None]
    return agop.explain(agop.load_model(MODEL[0], folder / "w.pt"), image, method, *prior, **options)


def test_fit_equals_agop_fit_and_records_classes_and_preprocessing(folder):
    prior = agop.AGOP.load(folder / "prior.safetensors")
    assert 30 < prior.count <= 60
    assert prior.class_counts.sum() == prior.count
    assert prior.class_names == ("class0", "class1")
    assert agop.Preprocessing.from_dict(prior.provenance.data.preprocessing) == HOW
    expected = agop.fit(agop.load_model(MODEL[0], folder / "w.pt"), [training_data(folder)], progress=False)
    torch.testing.assert_close(prior.diagonal, expected.diagonal)


def test_explain_writes_overlays_a_manifest_and_the_maps_of_agop_explain(folder):
    run_checked(
        "explain", MODEL[0], "data/class0", "data/class1/001.png", *MODEL[1:], "--prior", "prior.safetensors",
        "--out", "one", "--batch-size", "7", folder=folder,
    )  # fmt: skip
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    assert manifest["prior_provenance"]["kind"] == "one checkpoint"
    for entry in manifest["images"]:
        assert set(entry) == {"file", "picture", "predicted", "probability", "target", "label"}
        assert 0.5 <= entry["probability"] <= 1
        with Image.open(folder / "one" / entry["picture"]) as picture:
            assert picture.width > picture.height >= 192
    images = torch.stack([HOW.tensor(HOW.picture(folder / entry["file"])) for entry in manifest["images"]])
    assert images.shape == (31, 1, 8, 8)
    prior = agop.AGOP.load(folder / "prior.safetensors")
    expected = {"agop": agop.explain(agop.load_model(MODEL[0], folder / "w.pt"), images, "agop", prior)}
    torch.testing.assert_close(load_file(folder / "one" / "maps.safetensors"), expected)


PHOTO_NETWORK = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 8, stride=8), nn.Tanh(), nn.Conv2d(4, 4, 2, stride=2), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 2))
"""


def test_without_a_prior_the_default_is_agop_for_networks_of_photographs_and_vanilla_for_small_ones(folder):
    (folder / "photo_network.py").write_text(PHOTO_NETWORK)
    how = ("--size", "112", "--mean", "0.5", "--std", "0.5")
    for command, model, name in (
        ("explain", ("photo_network:make", *how), "agop"), ("sanity", ("photo_network:make", *how), "agop"),
        ("explain", MODEL, "vanilla"), ("sanity", MODEL, "vanilla"),
    ):  # fmt: skip
        out = ("--out", f"default-{name}") if command == "explain" else ("--steps", "1")
        images = "data/class1/001.png" if command == "explain" else "data"
        output = run_checked(command, model[0], images, *model[1:], *out, folder=folder).stdout
        assert f"method: {name}. With a prior from `agop fit`, also agop" in output
        if command == "explain":
            assert set(load_file(folder / out[1] / "maps.safetensors")) == {name}
        else:
            assert f"rank correlation of {name} maps" in output


def test_references_are_prepared_like_the_images(folder):
    """A folder of images of another size, without the unreadable one."""
    save(folder / "others" / "1.png", np.full((16, 16), 200))
    (folder / "others" / "2.png").write_text("text")
    arguments = ("explain", MODEL[0], "data/class1/001.png", *MODEL[1:], "--out", "expected")
    method = ("--method", "expected-gradients:samples=3")
    assert "2.png" in run_checked(*arguments, *method, "--references", "others", folder=folder).stderr
    references = HOW.tensor(HOW.picture(folder / "others" / "1.png"))[None]
    expected = map_of(folder, method[1], references=references)
    torch.testing.assert_close(load_file(folder / "expected" / "maps.safetensors")[method[1]], expected)
    assert json.loads((folder / "expected" / "manifest.json").read_text())["references"] == "others"
    assert "pass references= " in error_of(*arguments, *method, folder=folder)
    (folder / "others" / "1.png").write_text("text")
    error = error_of(*arguments, *method, "--references", "others", folder=folder)
    assert "none of 2 files in others could be read" in error


def test_sanity_prints_a_table_per_method(folder):
    arguments = ("sanity", MODEL[0], "data", *MODEL[1:], "--images", "7", "--steps", "2")
    assert "rank correlation of vanilla maps" in run_checked(*arguments, folder=folder).stdout
    methods = ("--method", "agop-global", "--method", "expected-gradients:samples=2")
    more = ("--prior", "prior.safetensors", "--references", "data")
    output = run_checked(*arguments, *methods, *more, folder=folder).stdout
    assert output.count("means over 7 images with 95 % intervals") == 2
    assert "down to fc " in output
    assert "model-independent given the prior" in output
    assert "known: random" in error_of(*arguments, "--method", "zzz", folder=folder)


def test_several_methods_make_a_sheet_and_equal_names_keep_their_folders(folder):
    save(folder / "twin" / "001.png", np.full((12, 20), 90))
    result = run_checked(
        "explain", MODEL[0], "data/class1/001.png", "twin", *MODEL[1:], "--prior", "prior.safetensors",
        "--out", "sheet", "--method", "gradcam", "--method", "agop-global", "--method", "vanilla",
        "--layer", "conv2", "--target", "class1", folder=folder,
    )  # fmt: skip
    assert "5×5 for 8×8" in result.stderr
    manifest = json.loads((folder / "sheet" / "manifest.json").read_text())
    assert [entry["picture"] for entry in manifest["images"]] == [
        "overlays/data/class1/001.png", "overlays/twin/001.png",
    ]  # fmt: skip
    assert [(entry["label"], entry["target"]) for entry in manifest["images"]] == [(1, 1), (None, 1)]
    assert manifest["methods"]["gradcam"] == {"layer": "conv2"}
    with Image.open(folder / "sheet" / "overlays" / "twin" / "001.png") as picture:
        assert picture.width > 4 * 192 > picture.height


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_all_methods_and_options_in_their_names(folder):
    arguments = ("explain", MODEL[0], "data/class0/000.png", *MODEL[1:], "--method", "smoothgrad:samples=2", "--method")
    run_checked(*arguments, "all", "--out", "all", folder=folder)
    methods = json.loads((folder / "all" / "manifest.json").read_text())["methods"]
    assert list(methods) == ["smoothgrad:samples=2", *agop.methods.runnable(None)]
    assert (methods["smoothgrad:samples=2"]["samples"], methods["smoothgrad"]["samples"]) == (2, 50)
    with Image.open(folder / "all" / "overlays" / "000.png") as sheet:  # in rows of 6
        assert sheet.width == 6 * 200 - 8
        assert sheet.height > 192 * -(-(len(methods) + 1) // 6)
    more = ("--prior", "prior.safetensors", "--references", "data")
    run_checked(*arguments, "all", *more, "--out", "all", folder=folder)
    runnable = agop.methods.runnable(agop.AGOP.load(folder / "prior.safetensors"), with_references=True)
    assert set(runnable) < load_file(folder / "all" / "maps.safetensors").keys()


def test_fit_skips_unreadable_images_with_a_warning(folder):
    save(folder / "mixed" / "a" / "good.png", np.full((8, 8), 90))
    (folder / "mixed" / "a" / "text.png").write_text("text")
    arguments = ("mixed", *MODEL[1:], "--all-samples", "--out", "mixed.safetensors")
    result = run_checked("fit", MODEL[0], *arguments, folder=folder)
    assert "1 of 2" in result.stdout
    assert "text.png can't be read as an image" in result.stderr
    assert "mixed has 1 class folder (a), the model 2 classes: images are counted without labels" in result.stderr
    assert "accuracy: unknown" in result.stdout


def test_exception_of_the_model_is_one_line_without_AGOP_TRACEBACK(folder):
    (folder / "bug.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        {}['key']\n"
    )
    arguments = ("fit", "bug:M", "data", "--size", "8", "--mean", "0", "--std", "1")
    result = run(*arguments, folder=folder)
    assert result.stderr.splitlines()[-1] == "error: KeyError: 'key' (set AGOP_TRACEBACK=1 for the traceback)"
    with pytest.raises(KeyError):
        run(*arguments, folder=folder, AGOP_TRACEBACK="1")


def test_version_and_help():
    assert run("--version", folder=".").stdout == f"agop {agop.__version__}\n"
    assert "explain" in run("--help", folder=".").stdout
    code = "import sys; from agop.cli import main; assert not {'torch', 'gradio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "agop.bench:CNN8by8", "nowhere"], "nowhere is not a folder"),
        (["fit", "agop.bench:CNN8by8", "data", "--mean", "a,b"], "mean is 'a,b'"),
        (["fit", "agop.bench:CNN8by8", "data", "--std", "0"], "std is 0.0: it must be above 0"),
        (["fit", "agop.bench:CNN8by8", "data", "--size", "8"], "these have 3 channels: pass --gray"),
        (["fit", "slow:never", "data", "--out", "data"], "out data is a folder: give a file"),
        (["fit", "slow:never", "data", "--out", "w.pt/a"], "w.pt isn't a writable folder"),
        (["fit", "raises:make", "data"], "raises:make raised ZeroDivisionError: division by zero"),
        (["fit", "raises:needs", "data"], "it is called without arguments"),
        (["fit", "raises:mak", "data"], "did you mean 'raises:make'"),
        (["fit", "raises.py:make", "data"], "omit the .py"),
        (["fit", "broken_syntax:make", "data"], "SyntaxError"),
        (["fit", "needs_package:make", "data"], "needs no_such_package, which isn't installed"),
        (["fit", "exits:make", "data"], "exits can't be imported, because it calls sys.exit(0): move what it runs"),
        (["explain", "exits_later:make", "data"], "exits_later:make raised SystemExit: usage: train.py"),
        (["explain", "exits_later:Forward", "data"], "the model calls sys.exit(3) in its forward pass: remove it"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--method", "exits:Method"], "exits can't be imported"),
        (["fit", "agop.bench:CNN8by8", "data", "--num-classes", "5"], "--num-classes is for a library's models"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--layer", "conv2"], "--layer is for gradcam"),
        (["explain", "agop.bench:CNN8by8", "nothing.png"], "nothing.png does not exist"),
        (["explain", "agop.bench:CNN8by8", "data", "--method", "agop-weigted"], "did you mean 'agop-weighted'"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--method", "agop-global"], "agop-global needs a prior"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--prior", "w.pt"], "w.pt is not an AGOP file"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--target", "5"], "target 5 of sample 0"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--target", "x"], "no class is named 'x'"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--names", "raises.py"], "has 4 class names, the model 2"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--method", "gradcam", "--layer", "conv9"], "no layer 'conv9'"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--out", "w.pt"], "could not write w.pt"),
        (["explain", *MODEL[:1], "w.pt", *MODEL[1:]], "none of the files could be read"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--device", "cuda"], "cuda"),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(folder, arguments, message):
    assert message in error_of(*arguments, folder=folder)


@pytest.fixture(scope="module")
def log_odds_prior(folder):
    """The path of a prior of gradients of the log-odds, with preprocessing."""
    model = agop.load_model(MODEL[0], folder / "w.pt")
    prior = agop.fit(model, [training_data(folder)], progress=False, output="log_odds")
    prior.save(folder / "log-odds.safetensors", preprocessing=HOW)
    return "log-odds.safetensors"


@pytest.mark.parametrize(
    ("options", "output"), [((), "log_odds"), (("--output", "log_odds"), "log_odds"), (("--output", "logit"), "logit")]
)
def test_explain_uses_the_output_of_the_prior_unless_an_option_says_otherwise(folder, log_odds_prior, options, output):
    arguments = ("explain", MODEL[0], "data/class1/001.png", *MODEL[1:], "--prior", log_odds_prior, "--out", output)
    result = run_checked(*arguments, "--method", "agop-weighted", *options, folder=folder)
    assert ("pass the same output" in result.stderr) == (output == "logit")
    prior = agop.AGOP.load(folder / log_odds_prior)
    weighted = map_of(folder, "vanilla", output=output) * prior.weights[0]
    torch.testing.assert_close(load_file(folder / output / "maps.safetensors")["agop-weighted"], weighted.float())
    assert json.loads((folder / output / "manifest.json").read_text())["output"] == output


def test_evaluate_and_sanity_use_the_output_of_the_prior(folder, log_odds_prior):
    method = (*MODEL[1:], "--prior", log_odds_prior, "--method", "agop-weighted")
    more = ("--metric", "energy", "--threshold", "128", "--out", "log-odds-scores")
    arguments = ("evaluate", MODEL[0], "data", "data", *method, *more)
    result = run_checked(*arguments, folder=folder)
    assert "Gradients are those of log_odds" in result.stdout
    assert "same output" not in result.stderr
    result = run_checked(*arguments, "--output", "logit", folder=folder)
    assert "Gradients are those of log_odds" not in result.stdout
    assert "pass the same output" in result.stderr
    arguments = ("sanity", MODEL[0], "data", *method, "--images", "3", "--steps", "1")
    assert "same output" not in run_checked(*arguments, folder=folder).stderr
    assert "pass the same output" in run_checked(*arguments, "--output", "logit", folder=folder).stderr
