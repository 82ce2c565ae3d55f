"""The folder that `agop explain` writes: names, page, memory, skipped files, and files that it must not touch."""

import json
import os
import re
import shutil
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import agop
from agop.bench import CNN8by8
from agop.errors import LayerError
from agop.images.explained import Explainer, Prediction, label_of, lines, percent, summary
from agop.images.explanation_folder import ExplanationFolder, Overview
from tests.command import error_of, run_checked
from tests.image_files import save_random

MODEL = "agop.bench:CNN8by8"
PREPROCESSING = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
FILES = ("--weights", "w.safetensors", "--prior", "prior.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images with the same names in class folders, weights, and a prior with class names."""
    folder = tmp_path_factory.mktemp("explanations")
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), folder / "w.safetensors")
    prior = agop.fit(model, [torch.randn(20, 1, 8, 8)], only_correct=False, progress=False)
    prior.save(folder / "prior.safetensors", preprocessing=PREPROCESSING, classes=["disc", "square"])
    save_random(folder / "photos", "disc/000.png", "disc/001.png", "square/000.png", "square/deep/000.jpg")
    for name in ("same.PNG", "Same.png"):
        shutil.copy(folder / "photos/disc/000.png", folder / name)
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
        (["photos/disc/000.png", "same.PNG", "Same.png"], ["photos/disc/000.png", "same.png", "Same-2.png"]),
        (["photos/square/../disc", "./photos/square"], ["disc/000.png", "disc/001.png", "square/000.png",
                                                         "square/deep/000.png"]),
    ],
)  # fmt: skip
def test_names_are_relative_to_the_common_folder(folder, tmp_path, paths, names):
    result, manifest = explain(folder, *paths, out=tmp_path)
    assert [entry["picture"] for entry in manifest["images"]] == [f"overlays/{name}" for name in names]
    assert all((tmp_path / "overlays" / name).is_file() for name in names)
    assert f"\n{len(names)} image{'s' if len(names) > 1 else ''}, " in result.stdout


def test_unreadable_file_is_reported_once(folder, tmp_path):
    message = error_of("explain", MODEL, "notes.txt", *FILES, "--out", tmp_path / "out", folder=folder)
    assert message.count("notes.txt") == message.count("can't be read as an image") == 1
    assert "none of the files could be read" in message
    assert contents(tmp_path) == {tmp_path / "out" / ".agop": b""}
    (folder / "cut.png").write_bytes((folder / "photos/disc/000.png").read_bytes()[:60])
    result, manifest = explain(folder, "cut.png", "photos/disc/000.png", out=tmp_path / "out")
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


@pytest.mark.parametrize("out", ["photos", ".", "photos/explained"])
def test_originals_stay_and_overlays_are_not_explained_in_the_next_run(copied, out):
    before = contents(copied)
    _, first = explain(copied, "photos", "--force", out=out)
    after = contents(copied)
    assert {path: after[path] for path in before} == before
    new = {copied / out / name for name in first["outputs"]}
    assert after.keys() - before.keys() - {copied / out / ".agop"} == new
    assert len(first["images"]) == 4
    assert explain(copied, "photos", "--force", out=out)[1] == first
    assert contents(copied) == after


def test_inputs_are_not_overwritten(copied):
    """Images in a folder called overlays, whose parent is the output."""
    (copied / "photos").rename(copied / "overlays")
    before = contents(copied)
    message = error_of("explain", MODEL, "overlays", *FILES, "--out", ".", "--force", folder=copied)
    assert "overlays/disc/000.png is one of the inputs" in message
    assert contents(copied) == before


def test_folder_of_somebody_else_is_written_only_by_force(copied):
    (copied / "out").mkdir()
    (copied / "out" / "index.html").write_text("mine")
    message = error_of("explain", MODEL, "photos", *FILES, "--out", "out", folder=copied)
    assert "out already exists" in message
    assert "--force" in message
    assert contents(copied / "out") == {copied / "out" / "index.html": b"mine"}
    result = run_checked("explain", MODEL, "photos", *FILES, "--out", "out", "--force", folder=copied)
    assert "4 images" in result.stdout
    assert (copied / "out" / "index.html").read_bytes() != b"mine"


def test_a_run_replaces_an_unfinished_one_and_removes_its_other_overlays(copied):
    explain(copied, "photos", out="out")
    explainer = Explainer(CNN8by8(), ["vanilla"], agop.Preprocessing((8, 8), gray=True))
    files = [copied / "photos" / name for name in ("square/000.png", "disc/000.png", "disc/001.png")]
    unfinished = ExplanationFolder(copied / "out", files, explainer, {"model": "mine"})
    for explained in explainer.explained(files[:2], pytest.fail):
        unfinished.add(explained)
    manifest = json.loads((copied / "out" / "manifest.json").read_text())
    assert not manifest["complete"]
    manifest["outputs"] += ["../photos/disc/000.png", str(copied / "w.safetensors")]  # not of the folder
    (copied / "out" / "manifest.json").write_text(json.dumps(manifest))
    (copied / "out" / "overlays" / "foreign.png").touch()
    _, manifest = explain(copied, "photos/disc/001.png", out="out")
    assert manifest["complete"]
    assert sorted(path.name for path in (copied / "out").rglob("*.png")) == ["001.png", "foreign.png"]
    assert (copied / "photos/disc/000.png").exists()
    assert (copied / "w.safetensors").exists()


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    """Neither maps and pictures nor copies of them are kept: a map has 36 kB here, a picture 28 kB."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    explainer = Explainer(model, ["vanilla", "agop-local"], agop.Preprocessing((96, 96)), batch_size=4)
    save_random(tmp_path, *(f"{index:03}.jpg" for index in range(20)), shape=(96, 96, 3))
    files = sorted(tmp_path.iterdir())
    folder = ExplanationFolder(tmp_path / "out", files, explainer, {"model": "mine"})
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
    maps = load_file(tmp_path / "out" / "maps.safetensors")
    inputs = torch.stack([explainer.preprocessing.tensor(explainer.preprocessing.picture(file)) for file in files])
    torch.testing.assert_close(maps["agop-local"], agop.explain(model, inputs, "vanilla"))
    assert torch.equal(maps["vanilla"], maps["agop-local"])


def test_colour_options_change_the_pictures_and_are_recorded(folder, tmp_path):
    options = ("--scale", "common", "--percentile", "90", "--opacity", "0.5", "--colours", "jet")
    _, manifest = explain(folder, "photos/disc/000.png", *options, out=tmp_path / "jet")
    assert manifest["colouring"] == {"scale": "common", "percentile": 90.0, "opacity": 0.5, "colours": "jet"}
    _, manifest = explain(folder, "photos/disc/000.png", out=tmp_path / "own")
    assert manifest["colouring"] == {"scale": "own", "percentile": 98.0, "opacity": 1.0, "colours": "inferno"}
    assert (tmp_path / "jet" / "overlays" / "000.png").read_bytes() != (
        tmp_path / "own" / "overlays" / "000.png"
    ).read_bytes()
    message = error_of("explain", MODEL, "photos", "--colours", "jett", folder=folder)
    assert "no colour map is named 'jett': did you mean 'jet'?" in message


@pytest.fixture
def files(tmp_path):
    """Five images, the third unreadable."""
    save_random(tmp_path, *(f"{index}.png" for index in range(5)))
    (tmp_path / "2.png").write_text("text")
    return sorted(tmp_path.iterdir())


def test_failing_method_raises_unless_lenient(files):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    with pytest.raises(LayerError):
        list(Explainer(model, ["vanilla", "gradcam"], PREPROCESSING).explained(files, print))
    messages = []
    lenient = Explainer(model, ["vanilla", "gradcam"], PREPROCESSING, batch_size=1, lenient=True)
    results = list(lenient.explained(files, messages.append))
    assert [list(result.maps) for result in results] == [["vanilla"]] * 4
    assert len([message for message in messages if message.startswith("gradcam: ")]) == 1


def test_caption_has_the_predicted_and_the_explained_class(files):
    explainer = Explainer(CNN8by8(), ["vanilla"], PREPROCESSING)
    [result] = explainer.explained(files[:1], print)
    other = 1 - result.predicted
    assert explainer.caption(result) == f"predicted class {result.predicted}"
    names = ["disc", "square"]
    named = Explainer(explainer.model, ["vanilla"], PREPROCESSING, target=other, names=names)
    [result] = named.explained(files[:1], print)
    assert named.caption(result) == f"predicted {names[result.predicted]}, explained {names[other]}"


NAMES = ("cat", "dog", "crane", "crane")


def prediction(file, predicted, probability, label=None):
    return Prediction(file, f"overlays/{file}", predicted, probability, predicted, label)


MIXED = [
    prediction("a.png", 0, 0.9, 0),
    prediction("b.png", 1, 0.6, 0),
    prediction("c.png", 0, 0.99999),
    prediction("long/d.png", 0, 0.8, 1),
]


def test_summary_counts_only_images_with_a_known_class():
    assert summary(MIXED) == "4 images, 1 of 3 with a known class classified correctly (33.3\u00a0%)"
    assert summary(MIXED[:1]) == "1 image, 1 of 1 classified correctly (100.0\u00a0%)"
    assert summary(MIXED[2:3]) == "1 image"


def test_lines_are_a_table_of_the_first_ones():
    assert lines(MIXED, NAMES, 3) == [
        "file        predicted  probability",
        "long/d.png  cat             80.0\u00a0%  wrong: dog",
        "b.png       dog             60.0\u00a0%  wrong: cat",
        "a.png       cat             90.0\u00a0%",
    ]
    assert lines(MIXED[2:3], (), 3)[1] == "c.png  class 0    over 99.9\u00a0%"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.0"), (1e-9, "under 0.1"), (0.0005, "0.1"), (0.9996, "over 99.9"), (1, "100.0")]
)
def test_percent_rounds_to_0_and_100_only_what_is(value, text):
    assert percent(value) == f"{text}\u00a0%"


@pytest.mark.parametrize(
    ("path", "folder", "label"),
    [
        ("photos/cat/1.png", "photos", 0),
        ("photos/dog/cat/1.png", "photos", 1),
        ("photos/test/dog/1.png", "photos", 1),
        ("photos/dog/1.png", "photos/dog", 1),
        ("photos/dog/1.png", None, 1),
        ("dog/photos/1.png", None, None),
        ("dog/photos/1.png", "dog/photos", None),
        ("photos/1.png", "photos", None),
        ("photos/Cat/1.png", "photos", None),
        ("photos/crane/1.png", "photos", None),
    ],
)
def test_label_is_the_folder_with_a_class_name(path, folder, label):
    assert label_of(Path(path), None if folder is None else Path(folder), NAMES) == label


SCRIPT = "<script>document.title='gone'</script>"
PICTURES = [np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 90, np.uint8)]


def write_page(
    folder, predictions, names=("cat", "dog"), pictures=PICTURES, skipped=(), model="m", methods=("vanilla",), **more
):
    page = Overview(folder / "index.html", Explainer(None, methods, None, names=names, **more), model)
    for prediction in predictions:
        page.add(prediction, pictures)
    page.write(predictions, skipped)
    return (folder / "index.html").read_text()


def files_of(page):
    return re.findall(r'<th scope="row"[^>]*><bdi>(.*?)</bdi>', page)


def test_page_has_the_wrong_predictions_first(tmp_path):
    page = write_page(tmp_path, MIXED)
    assert files_of(page) == ["long/d.png", "b.png", "a.png", "c.png"]
    assert page.count("✗ wrong") == 2
    assert page.count("✓ correct") == 1
    assert "4 images, 1 of 3 with a known class classified correctly" in page
    assert "unlabelled" in write_page(tmp_path, MIXED[2:3]).split("<table")[1]


def test_text_from_files_is_escaped(tmp_path):
    name = f'{SCRIPT}"&\u202e.png'
    prediction = Prediction(name, f"overlays/{name}", 0, 0.5, 1, 1)
    page = write_page(
        tmp_path, [prediction], (SCRIPT, f"{SCRIPT}2"), skipped=[SCRIPT], model=SCRIPT, methods=[SCRIPT, "b"], target=0
    )
    assert "<script>document" not in page
    assert page.count("&lt;script&gt;document") >= 7
    assert 'href="overlays/%3Cscript%3Edocument.title%3D%27gone%27%3C/script%3E%22%26%E2%80%AE.png"' in page


def test_names_that_are_not_utf8_are_shown_and_linked(tmp_path):
    name = os.fsdecode(b"\xff.png")
    page = write_page(tmp_path, [Prediction(name, f"overlays/{name}", 0, 0.5, 0)])
    assert files_of(page) == ["\ufffd.png"]
    assert 'href="overlays/%FF.png"' in page


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (400, "jpeg")])
def test_images_are_small_and_inside_the_page(tmp_path, side, kind):
    pictures = [np.random.default_rng(0).integers(0, 255, (side, side, 3)).astype(np.uint8)] * 2
    page = write_page(tmp_path, [Prediction("a.png", "overlays/a.png", 0, 0.5, 0)], pictures=pictures)
    assert page.count(f'src="data:image/{kind};base64,') == page.count(" src=") == 2
    assert len(page) < 40_000
