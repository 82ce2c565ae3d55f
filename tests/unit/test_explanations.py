"""What `agop explain` writes: names that keep their class folders, class names, and each bad file told once."""

import json
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop.app import example
from agop.app.folder import zipped
from agop.app.session import Session
from agop.cli.app import load
from agop.networks import CNN8by8
from agop.pictures.explained import Explainer
from tests.command import run

MODEL = "agop.networks:CNN8by8"
GIVEN = ("--weights", "w.safetensors", "--prior", "prior.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures in class folders, all of them with the same names; weights, and a prior that names the classes."""
    folder = tmp_path_factory.mktemp("explanations")
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), folder / "w.safetensors")
    prior = agop.fit(model, [torch.randn(20, 1, 8, 8)], only_correct=False, progress=False)
    how = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    prior.save(folder / "prior.safetensors", preprocessing=how, classes=["disc", "square"])
    draw = np.random.default_rng(0)
    for place in ("photos/disc/000.png", "photos/disc/001.png", "photos/square/000.png", "photos/square/deep/000.jpg"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8)).astype(np.uint8)).save(folder / place)
    (folder / "notes.txt").write_text("notes")
    return folder


def explained(folder, *arguments, out):
    done = run("explain", MODEL, *arguments, *GIVEN, "--out", out, folder=folder)
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / out / "manifest.json").read_text())


def test_class_folders_are_kept(folder):
    done, manifest = explained(folder, "photos", out="kept")
    names = [entry["picture"] for entry in manifest["images"]]
    assert names == ["disc/000.png", "disc/001.png", "square/000.png", "square/deep/000.png"]
    assert manifest["images"][0]["file"] == "photos/disc/000.png"
    assert {str(p.relative_to(folder / "kept")) for p in (folder / "kept").rglob("*.png")} == set(names)
    assert len(load_file(folder / "kept" / "maps.safetensors")["agop-weighted"]) == 4
    assert "wrote 4 pictures," in done.stdout


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["photos/disc"], ["000.png", "001.png"]),
        (["photos/disc/000.png"], ["000.png"]),
        (["photos/disc/000.png", "photos/square/000.png"], ["disc/000.png", "square/000.png"]),
        (["photos/disc/000.png", "photos/disc/000.png"], ["000.png", "000-2.png"]),
        (["photos/square/../disc", "./photos/square"], ["disc/000.png", "disc/001.png", "square/000.png",
                                                         "square/deep/000.png"]),
    ],
)  # fmt: skip
def test_names_are_those_below_what_all_pictures_share(folder, tmp_path, given, names):
    done, manifest = explained(folder, *given, out=tmp_path)
    assert [entry["picture"] for entry in manifest["images"]] == names
    assert all((tmp_path / name).is_file() for name in names)
    assert f"wrote {len(names)} picture{'s' if len(names) > 1 else ''}," in done.stdout


def test_nothing_is_written_beside_the_folder(folder, tmp_path):
    """Pictures from far apart, one of them a link to elsewhere."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "far" / "away" / "link.png").symlink_to(folder / "photos" / "disc" / "000.png")
    before = set(tmp_path.rglob("*"))
    explained(folder, tmp_path / "far" / "away", "photos/disc/001.png", out=tmp_path / "out")
    assert {path for path in tmp_path.rglob("*") if tmp_path / "out" not in [path, *path.parents]} == before
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


def test_classes_have_their_names_in_the_manifest_and_on_the_sheet(folder, tmp_path):
    _, manifest = explained(folder, "photos/disc", "--method", "vanilla", "--method", "agop-global", out=tmp_path)
    assert manifest["classes"] == ["disc", "square"]
    prior = agop.AGOP.load(folder / "prior.safetensors")
    model, how = CNN8by8(), agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    model.load_state_dict(load_file(folder / "w.safetensors"))
    explainer = Explainer(model, ["vanilla", "agop-global"], how, prior, target=1, names=prior.class_names)
    first = next(explainer.explained([folder / "photos" / "disc" / "000.png"]))
    other = "disc" if first.predicted == 0 else "square"
    assert explainer.caption(first) == ("predicted disc, explained square" if other == "disc" else "predicted square")
    assert "predicted 0" in Explainer(model, ["vanilla"], how).caption(first) or first.predicted == 1


def test_the_apps_download_has_the_names_too(tmp_path):
    outcome = Session(load, example.fields()).explain(example.pictures(), ["vanilla"])
    with zipfile.ZipFile(zipped(outcome, tmp_path)) as archive:
        manifest = json.loads(archive.read("explanations/manifest.json"))
        assert {f"explanations/{entry['picture']}" for entry in manifest["images"]} <= set(archive.namelist())
    assert manifest["classes"] == ["T", "L"]


def test_a_file_that_is_no_picture_is_told_once(folder, tmp_path):
    done = run("explain", MODEL, "notes.txt", *GIVEN, "--out", tmp_path / "out", folder=folder)
    assert done.returncode == 2
    assert done.stderr.count("notes.txt") == 1
    assert done.stderr.count("cannot be read as a picture") == 1
    assert "could be read" in done.stderr
    assert not (tmp_path / "out").exists()
    (folder / "photos" / "cut.png").write_bytes((folder / "photos/disc/000.png").read_bytes()[:60])
    done, manifest = explained(folder, "photos/cut.png", "photos/disc/000.png", out=tmp_path)
    assert done.stderr.count("cut.png") == 1
    assert len(manifest["skipped"]) == 1
