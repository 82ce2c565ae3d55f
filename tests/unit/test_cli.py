"""The commands as a person runs them: real processes, real files."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import agop
from agop.cli.main import main
from agop.networks import CNN8by8
from agop.runs.gallery import Gallery
from agop.scenarios import xai_tris
from tests.command import run, run_process

MODEL = ("agop.networks:CNN8by8", "--weights", "w.pt", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of two classes in their folders, a network that is right about many, and its weights."""
    folder = tmp_path_factory.mktemp("cli")
    train, _, _ = xai_tris("linear")
    torch.manual_seed(1)
    model = CNN8by8()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(train)).repeat(4).split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(train.images[rows]), train.labels[rows]).backward()
        optimizer.step()
    torch.save(model.state_dict(), folder / "w.pt")
    for index in range(60):
        place = folder / "data" / f"class{int(train.labels[index])}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = ((train.images[index, 0].numpy() * 0.5 + 0.5) * 255).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{index:03d}.png")
    (folder / "raises.py").write_text("def make():\n    1 / 0\ndef needs(x):\n    pass\n")
    (folder / "broken_syntax.py").write_text("def make(:\n")
    (folder / "needs_package.py").write_text("import no_such_package\n")
    done = run("fit", MODEL[0], "data", *MODEL[1:], "--per-class", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "of 60 pictures counted" in done.stdout
    return folder


def test_fit_writes_a_prior_with_the_preprocessing_in_it(folder):
    prior = agop.AGOP.load(folder / "prior.safetensors")
    assert 30 < prior.count <= 60
    assert prior.class_counts.sum() == prior.count
    assert prior.provenance.data.classes == ("class0", "class1")
    assert prior.provenance.data.preprocessing["size"] == [8, 8]


def test_fit_gives_what_the_library_gives(folder):
    from pathlib import Path

    from agop.networks import load_model
    from agop.pictures.folders import ClassFolders
    from agop.pictures.preprocessing import Preprocessing

    how = Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    batches = ClassFolders(Path(folder / "data"), how).batches(32)
    expected = agop.fit(load_model(MODEL[0], folder / "w.pt"), batches, progress=False)
    found = agop.AGOP.load(folder / "prior.safetensors")
    torch.testing.assert_close(found.diagonal, expected.diagonal)


def test_explain_writes_overlays_maps_and_a_manifest(folder):
    done = run(
        "explain", MODEL[0], "data/class0", "data/class1/001.png", *MODEL[1:], "--prior", "prior.safetensors",
        "--out", "one", "--batch-size", "7", folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    maps = load_file(folder / "one" / "maps.safetensors")
    assert list(maps) == ["agop-weighted"]
    assert maps["agop-weighted"].shape == (len(manifest["images"]), 8, 8) == (31, 8, 8)
    entry = manifest["images"][3]
    assert set(entry) == {"file", "picture", "predicted", "probability", "target"}
    assert 0.5 <= entry["probability"] <= 1
    with Image.open(folder / "one" / entry["picture"]) as picture:
        assert picture.width == picture.height >= 192
    assert manifest["prior_provenance"]["kind"] == "one checkpoint"


def test_the_maps_are_those_of_explain(folder):
    from agop.networks import load_model
    from agop.pictures.preprocessing import Preprocessing

    run(
        "explain", MODEL[0], "data/class1/001.png", *MODEL[1:], "--method", "smoothgrad", "--out", "same", folder=folder
    )
    how = Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    image = how.tensor(how.picture(folder / "data" / "class1" / "001.png"))[None]
    expected = agop.explain(load_model(MODEL[0], folder / "w.pt"), image, "smoothgrad")
    torch.testing.assert_close(load_file(folder / "same" / "maps.safetensors")["smoothgrad"], expected)


def test_several_methods_give_a_sheet_and_files_of_one_name_keep_their_folders(folder):
    (folder / "twin").mkdir(exist_ok=True)
    Image.new("L", (20, 12), 90).save(folder / "twin" / "001.png")
    done = run(
        "explain", MODEL[0], "data/class1/001.png", "twin", *MODEL[1:], "--prior", "prior.safetensors",
        "--out", "sheet", "--method", "gradcam", "--method", "agop-global", "--method", "vanilla",
        "--layer", "conv2", "--target", "1", folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "5×5 for 8×8" in done.stderr
    manifest = json.loads((folder / "sheet" / "manifest.json").read_text())
    assert [entry["picture"] for entry in manifest["images"]] == ["data/class1/001.png", "twin/001.png"]
    assert [entry["target"] for entry in manifest["images"]] == [1, 1]
    assert manifest["methods"]["gradcam"] == {"layer": "conv2"}
    with Image.open(folder / "sheet" / "twin" / "001.png") as picture:
        assert picture.width > 4 * 192 > picture.height


def test_broken_pictures_are_left_out_and_named(folder):
    (folder / "mixed" / "a").mkdir(parents=True, exist_ok=True)
    (folder / "mixed" / "a" / "text.png").write_text("not a picture")
    Image.new("L", (8, 8), 90).save(folder / "mixed" / "a" / "good.png")
    done = run("explain", MODEL[0], "mixed", *MODEL[1:], "--out", "mixed-out", folder=folder)
    assert done.returncode == 0
    assert "text.png cannot be read as a picture" in done.stderr
    assert len(json.loads((folder / "mixed-out" / "manifest.json").read_text())["skipped"]) == 1
    assert "1 class folders, the model 2" not in done.stderr
    fitted = run("fit", MODEL[0], "mixed", *MODEL[1:], "--all-samples", "--out", "mixed.safetensors", folder=folder)
    assert fitted.returncode == 0, fitted.stderr
    assert "1 of 2 pictures counted" in fitted.stdout
    assert "text.png" in fitted.stderr
    assert "has 1 class folders, the model 2 classes" in fitted.stderr


def test_the_version():
    assert run("--version", folder=".").stdout == f"agop {agop.__version__}\n"


def test_a_bug_in_the_user_s_forward_pass_is_one_line_unless_asked_for(folder):
    (folder / "bug.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        {}['key']\n"
    )
    done = run("fit", "bug:M", "data", "--size", "8", folder=folder)
    assert done.stderr == "error: KeyError: 'key' (AGOP_TRACEBACK=1 shows where)\n"
    assert "bug.py" in run_process("fit", "bug:M", "data", "--size", "8", folder=folder, AGOP_TRACEBACK="1").stderr


def test_class_folders_in_another_order_are_noticed(folder):
    (folder / "swapped").mkdir(exist_ok=True)
    for name, source in (("a", "class1"), ("b", "class0")):
        if not (folder / "swapped" / name).exists():
            (folder / "swapped" / name).symlink_to(folder / "data" / source)
    done = run("fit", MODEL[0], "swapped", *MODEL[1:], "--out", "swapped.safetensors", folder=folder)
    assert "do the class folders a, b stand" in done.stderr


def test_list_names_every_method():
    done = run("list", folder=".")
    assert all(name in done.stdout for name in agop.methods.names())
    assert all(name in done.stdout for name in agop.metrics.names())
    assert all(name in done.stdout for name in agop.scenarios.names())
    assert "torchvision:NAME" in done.stdout


def test_help_does_not_wait_for_torch():
    code = "import sys; from agop import cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert "explain" in run("--help", folder=".").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "agop.networks:CNN8by8", "nowhere"], "nowhere is not a folder"),
        (["fit", "agop.networks:CNN8by8", "data", "--size", "big"], "size is 'big'"),
        (["fit", "agop.networks:CNN8by8", "data", "--mean", "a,b"], "mean is 'a,b'"),
        (["fit", "agop.networks:CNN8by8", "data", "--mean", "1,2"], "mean has 2 values"),
        (["fit", "agop.networks:CNN8by8", "data", "--std", "0"], "std is 0.0: it must be above 0"),
        (["fit", "agop.networks:CNN8by8", "data", "--size", "8"], "images of shape (32, 3, 8, 8)"),
        (["fit", "slow:never", "data", "--out", "data"], "out data is a folder: give a file"),
        (["fit", "slow:never", "data", "--out", "w.pt/a"], "w.pt is no folder, or may not be written to"),
        (["bench", "xai-tris", "--method", "captum:Saliency@black"], "captum:Saliency has no variant 'black'"),
        (["fit", "resnet18", "data"], "does not name a model"),
        (["fit", "raises:make", "data"], "raises:make raised ZeroDivisionError: division by zero"),
        (["fit", "raises:needs", "data"], "it is called without arguments"),
        (["fit", "raises:mak", "data"], "did you mean 'raises:make'"),
        (["fit", "raises.py:make", "data"], "omit the .py"),
        (["fit", "broken_syntax:make", "data"], "SyntaxError"),
        (["fit", "needs_package:make", "data"], "needs no_such_package, which isn't installed"),
        (["fit", "agop.networks:CNN8by8", "data", "--classes", "5"], "--classes is for a library's models"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--layer", "conv2"], "--layer is for gradcam"),
        (["explain", "agop.networks:CNN8by8", "nothing.png"], "nothing.png does not exist"),
        (["explain", "agop.networks:CNN8by8", "data", "--method", "agop-weigted"], "did you mean 'agop-weighted'"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--method", "agop-global"], "agop-global needs a prior"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--prior", "w.pt"], "w.pt is not an AGOP file"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--target", "5"], "target 5 of sample 0"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--method", "gradcam", "--layer", "conv9"], "no layer 'conv9'"),
        (["explain", *MODEL[:1], "w.pt", *MODEL[1:]], "none of these files could be read"),
        (["explain", *MODEL[:1], "data", *MODEL[1:], "--device", "cuda"], "cuda"),
    ],
)
def test_mistakes_get_one_line_and_no_traceback(folder, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["agop", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() sets its own
    warnings.simplefilter("default")
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in told
    assert "Traceback" not in told
    assert told.splitlines()[-1].startswith("error:")


def test_a_full_disk_while_explaining(folder):
    (folder / "in-the-way").write_text("")
    done = run("explain", MODEL[0], "data", *MODEL[1:], "--out", "in-the-way", folder=folder)
    assert done.returncode == 2
    assert "could not write in-the-way" in done.stderr


def test_evaluate_scores_pictures_with_masks_and_writes_a_run(folder):
    _, _, test = xai_tris("linear")
    for index in range(20):
        name = f"class{int(test.labels[index])}/{index:03d}.png"
        for kind, pixels in (("shown", test.images[index, 0] * 0.5 + 0.5), ("masks", test.masks[index].float())):
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels.numpy() * 255).clip(0, 255).astype(np.uint8)).save(folder / kind / name)
    done = run(
        "evaluate", MODEL[0], "shown", "masks", *MODEL[1:], "--prior", "prior.safetensors", "--method", "vanilla",
        "--method", "agop-global", "--metric", "energy", "--out", "evaluated", folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "page: agop report evaluated" in done.stdout
    rows = [json.loads(line) for line in (folder / "evaluated" / "rows.jsonl").read_text().splitlines()]
    energy = {row["method"]: row["value"] for row in rows if row["metric"] == "energy"}
    prior = agop.AGOP.load(folder / "prior.safetensors")
    assert energy["agop-global"] == pytest.approx(
        float(agop.metrics.energy(prior.map.expand(20, 8, 8), test.masks[:20]).mean()), abs=1e-6
    )
    assert any(row["metric"] == "accuracy" and row["value"] > 0.5 for row in rows)
    about = json.loads((folder / "evaluated" / "about.json").read_text())
    assert about["classes"] == {"shown": ["class0", "class1"]}
    assert about["command"].startswith("agop evaluate agop.networks:CNN8by8 shown masks")
    # The gallery holds pictures of both classes, under their names.
    kept, names = Gallery.load(folder / "evaluated" / "cells" / "shown-given-000"), about["samples"]["shown"]
    assert len(names) == len(kept.pictures) == 12
    assert [int(name[len("class")]) for name in names] == kept.labels.tolist()
    assert set(kept.labels.tolist()) == {0, 1}
    for name, picture in zip(names, kept.pictures, strict=True):
        file = np.asarray(Image.open(folder / "shown" / name)).astype(int)
        assert np.abs(file - picture[..., 0]).max() <= 1


def test_evaluate_names_the_mask_that_does_not_fit(folder, tmp_path):
    for kind, side in (("p", 8), ("m", 9)):
        (tmp_path / kind).mkdir()
        Image.fromarray(np.zeros((side, side), dtype=np.uint8)).save(tmp_path / kind / "a.png")
    done = run("evaluate", MODEL[0], tmp_path / "p", tmp_path / "m", *MODEL[1:], folder=folder)
    assert done.returncode == 2
    assert "is 9×9, its picture 8×8" in done.stderr
    assert "Traceback" not in done.stderr


def test_pictures_are_prepared_as_those_of_the_prior_unless_told_otherwise(folder):
    bare = (MODEL[0], "--weights", "w.pt", "--prior", "prior.safetensors")
    done = run(
        "explain", *bare, "data/class0/" + os.listdir(folder / "data/class0")[0], "--out", "asprior", folder=folder
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    how = json.loads((folder / "asprior" / "manifest.json").read_text())["preprocessing"]
    assert how == {"size": [8, 8], "mean": [0.5], "std": [0.5], "gray": True}
    other = run("explain", *bare, "data/class0", "--mean", "0.4", "--out", "other", folder=folder)
    assert "mean [0.5] then, [0.4] now" in other.stderr
