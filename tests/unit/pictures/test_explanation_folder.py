"""The folder that `agop explain` writes: names, memory, skipped files, and files that it must not touch."""

import json
import shutil
import tracemalloc
import weakref

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop.networks import CNN8by8
from agop.pictures.colouring import Colouring
from agop.pictures.explained import Explainer
from agop.pictures.explanation_folder import ExplanationFolder
from agop.pictures.explanation_outputs import ExplanationOutputs
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
    assert names == [f"overlays/{name}.png" for name in ("disc/000", "disc/001", "square/000", "square/deep/000")]
    assert manifest["images"][0]["file"] == "photos/disc/000.png"
    assert {str(p.relative_to(folder / "kept")) for p in (folder / "kept").rglob("*.png")} == set(names)
    assert len(load_file(folder / "kept" / "maps.safetensors")["agop"]) == 4
    assert manifest["classes"] == ["disc", "square"]
    assert [entry["label"] for entry in manifest["images"]] == [0, 0, 1, 1]
    assert result.stdout.splitlines()[-2].startswith("4 images, ")
    assert "of 4 classified correctly" in result.stdout
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
    assert [entry["picture"] for entry in manifest["images"]] == [f"overlays/{name}" for name in names]
    assert all((tmp_path / "overlays" / name).is_file() for name in names)
    assert f"\n{len(names)} image{'s' if len(names) > 1 else ''}, " in result.stdout


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
    (folder / "cut.png").write_bytes((folder / "photos/disc/000.png").read_bytes()[:60])
    result, manifest = explain(folder, "cut.png", "photos/disc/000.png", out=tmp_path)
    assert result.stderr.count("cut.png") == 1
    assert len(manifest["skipped"]) == 1


@pytest.fixture
def copied(folder, tmp_path):
    """A copy of the photos, weights and prior."""
    shutil.copytree(folder / "photos", tmp_path / "photos")
    for name in FILES[1::2]:
        shutil.copy(folder / name, tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("out", ["photos", ".", "photos/disc"])
def test_originals_stay_and_overlays_are_not_explained_in_the_next_run(copied, out):
    before = contents(copied)
    _, first = explain(copied, "photos", out=out)
    after = contents(copied)
    assert {path: after[path] for path in before} == before
    assert {copied / out / name for name in first["outputs"]} == after.keys() - before.keys()
    assert len(first["images"]) == 4
    assert explain(copied, "photos", out=out)[1] == first
    assert contents(copied) == after


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_inputs_are_not_overwritten(copied, force):
    """Images in a folder called overlays, whose parent is the output."""
    (copied / "photos").rename(copied / "overlays")
    before = contents(copied)
    message = error_of("explain", MODEL, "overlays", *FILES, "--out", ".", *force, folder=copied)
    assert "overlays/disc/000.png is one of the inputs" in message
    assert contents(copied) == before


@pytest.mark.parametrize("name", ["index.html", "manifest.json", "maps.safetensors", "overlays/disc/000.png"])
def test_foreign_files_are_overwritten_only_by_force(copied, name):
    (copied / "out" / name).parent.mkdir(parents=True)
    (copied / "out" / name).write_text("mine")
    message = error_of("explain", MODEL, "photos", *FILES, "--out", "out", folder=copied)
    assert f"out/{name} already exists" in message
    assert contents(copied / "out") == {copied / "out" / name: b"mine"}
    result = run_checked("explain", MODEL, "photos", *FILES, "--out", "out", "--force", folder=copied)
    assert "4 images" in result.stdout
    assert (copied / "out" / name).read_bytes() != b"mine"


def test_a_run_replaces_an_unfinished_one_and_removes_its_other_overlays(copied):
    explain(copied, "photos", out="out")
    explainer = Explainer(CNN8by8(), ["vanilla"], agop.Preprocessing((8, 8), gray=True))
    files = [copied / "photos" / name for name in ("square/000.png", "disc/000.png", "disc/001.png")]
    unfinished = ExplanationFolder(ExplanationOutputs(copied / "out", files), explainer, {"model": "mine"})
    for explained in explainer.explained(files[:2], pytest.fail):
        unfinished.add(explained)
    assert not json.loads((copied / "out" / "manifest.json").read_text())["complete"]
    _, manifest = explain(copied, "photos/disc/001.png", out="out")
    assert manifest["complete"]
    assert [path.name for path in (copied / "out").rglob("*.png")] == ["001.png"]
    assert {copied / "out" / name for name in manifest["outputs"]} == contents(copied / "out").keys()


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    """Neither maps and pictures nor copies of them are kept: a map has 36 kB here, a picture 28 kB."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    explainer = Explainer(model, ["vanilla", "agop-local"], agop.Preprocessing((96, 96)), batch_size=4)
    save_random(tmp_path, *(f"{index:03}.jpg" for index in range(20)), shape=(96, 96, 3))
    files = sorted(tmp_path.iterdir())
    folder = ExplanationFolder(ExplanationOutputs(tmp_path / "out", files), explainer, {"model": "mine"})
    kept, traced = [], []
    for explained in explainer.explained(files, pytest.fail):
        folder.add(explained)
        kept += [weakref.ref(value) for value in (explained.picture, *explained.maps.values())]
        if explained.path == files[7]:  # after imports and compiled templates
            tracemalloc.start()
        traced.append(tracemalloc.get_traced_memory()[0])
    del explained
    assert [reference() for reference in kept if reference() is not None] == []
    assert traced[-1] - traced[11] < 8 * 5_000
    tracemalloc.reset_peak()
    folder.finish([])
    peak = tracemalloc.get_traced_memory()[1] - traced[-1]
    tracemalloc.stop()
    assert peak < (tmp_path / "out" / "maps.safetensors").stat().st_size / 2
    assert len(load_file(tmp_path / "out" / "maps.safetensors")["agop-local"]) == 20


def test_one_method_gives_the_image_and_a_captioned_overlay(folder, tmp_path):
    explain(folder, "photos/disc/000.png", "--method", "vanilla", out=tmp_path)
    with Image.open(tmp_path / "overlays" / "000.png") as page:
        assert page.size == (2 * 192 + 8, 192 + 22)


def test_colour_options_change_the_pictures_and_are_recorded(folder, tmp_path):
    options = ("--scale", "common", "--percentile", "90", "--opacity", "0.5", "--colours", "jet")
    _, manifest = explain(folder, "photos/disc/000.png", *options, out=tmp_path / "jet")
    assert manifest["colouring"] == {"scale": "common", "percentile": 90.0, "opacity": 0.5, "colours": "jet"}
    _, manifest = explain(folder, "photos/disc/000.png", out=tmp_path / "own")
    assert Colouring(**manifest["colouring"]) == Colouring()
    assert (tmp_path / "jet" / "overlays" / "000.png").read_bytes() != (
        tmp_path / "own" / "overlays" / "000.png"
    ).read_bytes()
    message = error_of("explain", MODEL, "photos", "--colours", "jett", folder=folder)
    assert "no colour map is named 'jett': did you mean 'jet'?" in message
