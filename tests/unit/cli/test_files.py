"""Commands that read and write files: `merge`, `show`, `report`; what they and `fit` may overwrite; names of files."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import agop
from agop.bench import CNN8by8
from tests.command import error_of, run, run_checked, run_process
from tests.image_files import save_random
from tests.report_runs import write_xai_tris
from tests.unit.prior.test_show import of_classes, patches

HOW = ("--weights", "w.safetensors", "--size", "8", "--gray", "--mean", "0.5", "--std", "0.5", "--all-samples")
FIT = ("fit", "agop.bench:CNN8by8", "data", *HOW)
MERGE = ("merge", "a.safetensors", "b.safetensors")


@pytest.fixture
def folder(tmp_path):
    """Images, weights, two AGOP files, and files that aren't agop's."""
    torch.manual_seed(0)
    model = CNN8by8()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    save_file({"mine": torch.zeros(2)}, tmp_path / "other.safetensors")
    save_random(tmp_path / "data", *(f"{kind}/{index}.png" for kind in ("cat", "dog") for index in range(6)))
    for name in ("a", "b"):
        prior = agop.fit(model, [torch.randn(8, 1, 8, 8)], only_correct=False, progress=False)
        prior.save(tmp_path / f"{name}.safetensors")
    (tmp_path / "notes.txt").write_text("notes")
    return tmp_path


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("command", "out", "message"),
    [
        (FIT, "w.safetensors", "is one of the inputs"),
        (FIT, "data/../w.safetensors", "is one of the inputs"),
        (FIT, "data/cat/0.png", "is in an input folder"),
        (MERGE, "b.safetensors", "is one of the inputs"),
    ],
)
def test_inputs_are_not_overwritten(folder, command, out, message, force):
    before = (folder / out).read_bytes()
    assert f"{out} {message}" in error_of(*command, "--out", out, *force, folder=folder)
    assert (folder / out).read_bytes() == before


@pytest.mark.parametrize("command", [FIT, MERGE], ids=["fit", "merge"])
def test_agop_files_are_overwritten_and_others_only_by_force(folder, command):
    for out in ("notes.txt", "other.safetensors"):
        before = (folder / out).read_bytes()
        assert f"{out} already exists" in error_of(*command, "--out", out, folder=folder)
        assert (folder / out).read_bytes() == before
    run_checked(*command, "--out", "notes.txt", "--force", folder=folder)
    run_checked(*command, "--out", "notes.txt", folder=folder)
    assert agop.AGOP.load(folder / "notes.txt").count in (12, 16)


# Names of files


def test_emoji_codes_and_brackets_in_a_path_stay(folder):
    (folder / "data" / "cat").rename(folder / "data" / ":cat:")
    (folder / "data" / ":cat:" / "text.png").write_text("text")
    result = run_checked(*FIT, "--out", f":cat:[red]9 000 px{100 * 'x'}.safetensors", folder=folder)
    assert f"wrote :cat:[red]9 000 px{100 * 'x'}.safetensors" in result.stdout
    assert "skipped: data/:cat:/text.png can't be read" in result.stderr
    assert ":cat: is not a folder" in error_of("fit", FIT[1], "x/:cat:", folder=folder)


def test_names_that_are_not_utf8_are_read_and_printed_as_escapes(folder):
    os.rename(folder / "data" / "dog", os.fsdecode(os.fsencode(folder / "data") + b"/\xff"))
    result = run_process(*FIT, "--out", os.fsdecode(b"\xff.safetensors"), folder=folder)
    assert "12 of 12 images" in result.stdout
    assert "wrote \\udcff.safetensors" in result.stdout


# agop show


def test_show_prints_facts_and_concentration_and_draws_the_maps(tmp_path):
    prior = of_classes(patches(8, 1), [50] * 8, ["cat", "horse", *"abcdef"])
    (tmp_path / "some").mkdir()
    prior.save(tmp_path / "some" / "prior.safetensors")
    result = run_checked("show", "some/prior.safetensors", folder=tmp_path)
    assert result.stderr == ""
    assert (
        "class horse: 24 % of diag(M) in 16 of 1,024 pixels, at the bottom left; other classes 1.6 %" in result.stdout
    )
    rows = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert rows["class horse"] == ["class", "horse", "50", "24", "%", "bottom", "left"]
    assert rows["all samples"][2] == "400"
    assert "wrote some/prior.png" in result.stdout
    with Image.open(tmp_path / "some" / "prior.png") as sheet:
        # Six panels of 192 pixels in the first row, three in the second. The second panel is the horse's map.
        assert sheet.size == (6 * 192 + 5 * 8, 2 * (192 + 22) + 8)
        horse = np.asarray(sheet.convert("L"), dtype=int)[22 : 22 + 192, 200 : 200 + 192]
    assert horse[168:, :24].min() > 240 > 100 > horse[:168].max()


def test_many_classes_are_listed_up_to_a_limit_and_few_samples_warn(tmp_path):
    of_classes(patches(40, 7), [1] * 40).save(tmp_path / "prior.safetensors")
    result = run_checked("show", "prior.safetensors", "--out", "deep/maps.png", folder=tmp_path)
    assert sum(line.startswith("class ") for line in result.stdout.splitlines()) == 23
    assert "… and 17 more" in result.stdout
    assert "40 samples were counted, which is few" in result.stderr
    assert (tmp_path / "deep" / "maps.png").is_file()


def test_an_existing_png_is_overwritten_only_by_force(folder):
    save_random(folder, "a.png")
    photo = (folder / "a.png").read_bytes()
    assert "a.png already exists" in error_of("show", "a.safetensors", folder=folder)
    assert (folder / "a.png").read_bytes() == photo
    run_checked("show", "a.safetensors", "--force", folder=folder)
    assert (folder / "a.png").read_bytes() != photo


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.safetensors",), "could not read nothing.safetensors"),
        (("other.safetensors",), "other.safetensors is not an AGOP file"),
        (("a.safetensors", "--out", "maps.jpg"), "out maps.jpg isn't a .png file: give maps.png"),
        (("a.safetensors", "--out", "notes.txt/maps.png"), "notes.txt isn't a writable folder"),
    ],
)
def test_mistakes_are_one_line(folder, arguments, message):
    assert message in error_of("show", *arguments, folder=folder)


# agop report

EVERY_FORMAT = """
import sys
from agop.cli.main import cli
for name in ("html", "markdown", "csv", "latex", "json"):
    cli(["report", "run", "--format", name, "--out", name], standalone_mode=False)
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_no_format_needs_torch_and_the_format_follows_the_extension(tmp_path):
    write_xai_tris(tmp_path / "run", seeds=1)
    subprocess.run([sys.executable, "-c", EVERY_FORMAT], check=True, cwd=tmp_path)
    formats = {"html": "HTM", "markdown": "md", "csv": "csv", "latex": "tex", "json": "json"}
    for name, extension in formats.items():
        run_checked("report", "run", "--out", f"it.{extension}", folder=tmp_path)
        assert (tmp_path / f"it.{extension}").read_text() == (tmp_path / name).read_text()
    assert run("report", "run", "--format", "csv", folder=tmp_path).stdout == (tmp_path / "it.csv").read_text()
    assert "it.docx doesn't end in .html" in error_of("report", "run", "--out", "it.docx", folder=tmp_path)


def test_the_page_of_a_run_is_replaced_but_neither_the_run_nor_other_files(tmp_path):
    write_xai_tris(tmp_path / "run", seeds=1)
    for _ in range(2):
        assert run_checked("report", "run", folder=tmp_path).stdout == "wrote run/index.html\n"
    spec = (tmp_path / "run" / "spec.json").read_bytes()
    for force in ((), ("--force",)):
        message = error_of("report", "run", "--out", "run/spec.json", *force, folder=tmp_path)
        assert "run/spec.json is one of the inputs" in message
    assert (tmp_path / "run" / "spec.json").read_bytes() == spec
    (tmp_path / "mine.html").write_text("mine")
    assert "mine.html already exists" in error_of("report", "run", "--out", "mine.html", folder=tmp_path)
    assert (tmp_path / "mine.html").read_text() == "mine"
    run_checked("report", "run", "--out", "mine.html", "--force", folder=tmp_path)
    assert (tmp_path / "mine.html").read_bytes() == (tmp_path / "run" / "index.html").read_bytes()
