"""The folder that `agop explain` writes: file names, class names, and skipped files."""

import json

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop.networks import CNN8by8
from agop.pictures.colouring import Colouring
from tests.command import error_of, run_checked
from tests.image_files import save_random

MODEL = "agop.networks:CNN8by8"
FILES = ("--weights", "w.safetensors", "--prior", "prior.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images with the same names in class folders, weights, and a prior with class names."""
    folder = tmp_path_factory.mktemp("explanations")
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), folder / "w.safetensors")
    prior = agop.fit(model, [torch.randn(20, 1, 8, 8)], only_correct=False, progress=False)
    preprocessing = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    prior.save(folder / "prior.safetensors", preprocessing=preprocessing, classes=["disc", "square"])
    save_random(folder / "photos", "disc/000.png", "disc/001.png", "square/000.png", "square/deep/000.jpg")
    (folder / "notes.txt").write_text("notes")
    return folder


def explain(folder, *arguments, out):
    """Result of the command, and its manifest."""
    result = run_checked("explain", MODEL, *arguments, *FILES, "--out", out, folder=folder)
    return result, json.loads((folder / out / "manifest.json").read_text())


def test_class_folders_and_class_names_are_kept(folder):
    result, manifest = explain(folder, "photos", out="kept")
    names = [entry["picture"] for entry in manifest["images"]]
    assert names == ["disc/000.png", "disc/001.png", "square/000.png", "square/deep/000.png"]
    assert manifest["images"][0]["file"] == "photos/disc/000.png"
    assert {str(p.relative_to(folder / "kept")) for p in (folder / "kept").rglob("*.png")} == set(names)
    assert len(load_file(folder / "kept" / "maps.safetensors")["agop-weighted"]) == 4
    assert manifest["classes"] == ["disc", "square"]
    assert "wrote 4 images," in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["photos/disc"], ["000.png", "001.png"]),
        (["photos/disc/000.png"], ["000.png"]),
        (["photos/disc/000.png", "photos/square/000.png"], ["disc/000.png", "square/000.png"]),
        (["photos/disc/000.png", "photos/disc/000.png"], ["000.png", "000-2.png"]),
        (["photos/square/../disc", "./photos/square"], ["disc/000.png", "disc/001.png", "square/000.png",
                                                         "square/deep/000.png"]),
    ],
)  # fmt: skip
def test_names_are_relative_to_the_common_folder(folder, tmp_path, paths, names):
    result, manifest = explain(folder, *paths, out=tmp_path)
    assert [entry["picture"] for entry in manifest["images"]] == names
    assert all((tmp_path / name).is_file() for name in names)
    assert f"wrote {len(names)} image{'s' if len(names) > 1 else ''}," in result.stdout


def test_nothing_is_written_outside_the_folder(folder, tmp_path):
    """Images from different places, one of them a link."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "far" / "away" / "link.png").symlink_to(folder / "photos" / "disc" / "000.png")
    before = set(tmp_path.rglob("*"))
    explain(folder, tmp_path / "far" / "away", "photos/disc/001.png", out=tmp_path / "out")
    assert {path for path in tmp_path.rglob("*") if tmp_path / "out" not in [path, *path.parents]} == before
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


def test_unreadable_file_is_reported_once(folder, tmp_path):
    message = error_of("explain", MODEL, "notes.txt", *FILES, "--out", tmp_path / "out", folder=folder)
    assert message.count("notes.txt") == message.count("can't be read as an image") == 1
    assert "none of the files could be read" in message
    assert not (tmp_path / "out").exists()
    (folder / "photos" / "cut.png").write_bytes((folder / "photos/disc/000.png").read_bytes()[:60])
    result, manifest = explain(folder, "photos/cut.png", "photos/disc/000.png", out=tmp_path)
    assert result.stderr.count("cut.png") == 1
    assert len(manifest["skipped"]) == 1


def test_one_method_gives_the_image_and_a_captioned_overlay(folder, tmp_path):
    explain(folder, "photos/disc/000.png", "--method", "vanilla", out=tmp_path)
    with Image.open(tmp_path / "000.png") as page:
        assert page.size == (2 * 192 + 8, 192 + 22)


def test_colour_options_change_the_pictures_and_are_recorded(folder, tmp_path):
    options = ("--scale", "common", "--percentile", "90", "--opacity", "0.5", "--colours", "jet")
    _, manifest = explain(folder, "photos/disc/000.png", *options, out=tmp_path / "jet")
    assert manifest["colouring"] == {"scale": "common", "percentile": 90.0, "opacity": 0.5, "colours": "jet"}
    _, manifest = explain(folder, "photos/disc/000.png", out=tmp_path / "own")
    assert Colouring(**manifest["colouring"]) == Colouring()
    assert (tmp_path / "jet" / "000.png").read_bytes() != (tmp_path / "own" / "000.png").read_bytes()
    message = error_of("explain", MODEL, "photos", "--colours", "jett", folder=folder)
    assert "no colour map is named 'jett': did you mean 'jet'?" in message
