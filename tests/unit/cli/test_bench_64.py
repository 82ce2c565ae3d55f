"""`agop bench xai-tris-64` and `agop bench composite`: options and errors before any cell is computed."""

import numpy as np
import pytest
from PIL import Image

from agop.bench.cell import run_cells
from agop.report.run import Run
from agop.runs.about import About
from agop.runs.rows import collect
from agop.runs.spec import RunSpec
from tests.command import error_of, run_checked
from tests.unit.pictures.test_idx import idx

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function from arguments to the specification and the notes of a run that isn't computed."""
    monkeypatch.setattr("agop.bench.runner.run", lambda *_: None)
    monkeypatch.setattr("agop.cli.bench.common._show", lambda _: None)

    def plan(*arguments):
        run_checked("bench", *arguments, "--out", "run", folder=tmp_path)
        return RunSpec.load(tmp_path / "run"), About.load(tmp_path / "run").notes

    return plan


@pytest.fixture
def files(tmp_path):
    """Folders of photographs and digits, usable and damaged ones."""
    for name in ("empty", "few", "photos", "digits", "cut", "magic", "counts", "alone"):
        (tmp_path / name).mkdir()
    for number in range(12):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    Image.new("RGB", (32, 32)).save(tmp_path / "few" / "0.png")
    images, labels = idx(np.full((20, 28, 28), 255)), idx(np.arange(20) % 10)
    contents = {
        "digits": (images, labels),
        "cut": (images[:-1], labels),
        "magic": (labels, labels),
        "counts": (images, idx(np.arange(19) % 10)),
    }
    for name, (first, second) in contents.items():
        (tmp_path / name / IMAGES).write_bytes(first)
        (tmp_path / name / LABELS).write_bytes(second)
    (tmp_path / "alone" / IMAGES).write_bytes(images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--photos", "empty"], "empty has no pictures: pass a folder of images"),
        (["--photos", "few"], "photographs or digits: 1, too few"),
        (["--photos", "nowhere"], "nowhere doesn't exist: pass a folder of images"),
        (["--photos", f"digits/{LABELS}"], "is neither an .npz file nor a batch of CIFAR-10"),
        (["--digits", "empty"], "empty has no idx files: it needs train-images-idx3-ubyte"),
        (["--digits", "nowhere"], "nowhere doesn't exist: pass a folder with train-images-idx3-ubyte"),
        (["--digits", "cut"], "is truncated or damaged, 15,679 values instead of 15,680"),
        (["--digits", "magic"], "has magic number 0x00000801 instead of 0x00000803"),
        (["--digits", "counts"], "has 20 images, train-labels-idx1-ubyte 19 labels"),
        (["--digits", "alone"], "has no labels beside it"),
        (["--size", "48"], "size is 48: pass 32 or 64"),
        (["--samples", "0"], "samples is 0: pass 100 or more"),
        (["--scenario", "compsite"], "did you mean 'composite'"),
    ],
)
@pytest.mark.usefixtures("files")
def test_composite_reports_invalid_files_and_options_before_it_writes(arguments, message, tmp_path):
    assert message in error_of("bench", "composite", *arguments, "--out", "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--photos", "empty"], "empty has no pictures: pass a folder of images"),
        (["--photos", "nowhere"], "nowhere doesn't exist"),
        (["--photos", "photos", "--background", "white"], "--photos photos isn't used: add --background photos"),
        (["--scenario", "liner"], "did you mean 'linear-64'"),
        (["--background", "photo"], "did you mean 'photos'"),
    ],
)
@pytest.mark.usefixtures("files")
def test_xai_tris_64_reports_invalid_files_and_options_before_it_writes(arguments, message, tmp_path):
    assert message in error_of("bench", "xai-tris-64", *arguments, "--out", "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["xor", "xor-64"])
def test_scenario_is_named_by_its_task_or_in_full(name, planned):
    spec, notes = planned("xai-tris-64", "--scenario", name)
    assert spec.scenarios == ("xor-64",)
    assert (spec.backgrounds, spec.restarts, notes) == (("white",), 5, ())


@pytest.mark.parametrize(
    ("arguments", "backgrounds", "noted"),
    [
        (["--photos", "photos"], ("photos",), False),
        (["--photos", "photos", "--background", "photos", "--background", "white"], ("white", "photos"), False),
        (["--background", "photos"], ("pink-noise",), True),
        (["--background", "photos", "--background", "pink-noise"], ("pink-noise",), True),
        (["--background", "pink-noise"], ("pink-noise",), False),
    ],
)
@pytest.mark.usefixtures("files")
def test_pink_noise_stands_in_for_missing_photographs_with_a_note(arguments, backgrounds, noted, planned):
    spec, notes = planned("xai-tris-64", *arguments)
    assert spec.backgrounds == backgrounds
    assert any("pink noise" in note for note in notes) == noted


@pytest.mark.usefixtures("files")
def test_composite_runs_with_files_or_with_noted_stand_ins(planned, tmp_path):
    spec, notes = planned("composite")
    assert (spec.scenarios, spec.backgrounds) == (("composite", "composite-still"), ("pink-noise",))
    assert (spec.options, len(notes)) == ({}, 2)
    own = ("--digits", "digits", "--photos", "photos", "--size", "64", "--samples", "300", "--fresh")
    spec, notes = planned("composite", *own)
    assert (spec.backgrounds, notes) == (("photos",), ())
    paths = {name: str(tmp_path / name) for name in ("digits", "photos")}
    assert spec.options == paths | {"size": 64, "samples": 300}


@pytest.mark.parametrize(
    ("benchmark", "scenario", "background", "kinds"),
    [("xai-tris-64", "linear", "white", {"own", "union"}), ("composite", "composite", "pink-noise", {"own"})],
)
def test_quick_run_scores_every_kind_of_mask(benchmark, scenario, background, kinds, planned, tmp_path):
    arguments = ("--scenario", scenario, "--method", "vanilla", "--metric", "energy", "--seeds", 1)
    spec, _ = planned(benchmark, *arguments, "--quick")
    run_cells(spec, spec.cells(), tmp_path / "run", lambda done: None)
    collect(spec, tmp_path / "run")
    run = Run(tmp_path / "run")
    for kind in kinds:
        values = run.values(spec.scenarios[0], background, "vanilla", "energy", kind)
        assert 0 < values[0] < 1
    assert kinds <= set(run.kinds)
