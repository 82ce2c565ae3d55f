"""`agop audit`: a summary, JSON, tensors, tables and a page from class folders."""

import csv
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from tests import shortcuts
from tests.command import error_of, run, run_checked
from tests.image_files import save

NAMES = ("bar", "pole", "square")
NETWORK = '''
from pathlib import Path
from torch import nn

def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 3),
    )

class Blocked(nn.Sequential):
    """Puts a folder where the page should be written."""
    def forward(self, x):
        Path("blocked/index.html").mkdir(parents=True, exist_ok=True)
        return super().forward(x)

def blocked():
    return Blocked(*network())

def four():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
'''
HOW = ("--weights", "w.safetensors", "--size", "16", "--mean", "0", "--std", "1", "--gray", "--per-class", "80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a shortcut and its images."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "own_network.py").write_text(NETWORK)
    images, labels = shortcuts.drawn(360, 0.7)
    save_file(shortcuts.trained(images, labels).state_dict(), folder / "w.safetensors")
    retrained = shortcuts.trained(*shortcuts.drawn(360, 0.0))
    save_file(retrained.state_dict(), folder / "retrained.safetensors")
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        save(folder / "photos" / NAMES[label] / f"{index}.png", 255 * image[0].numpy())
    return folder


@pytest.fixture(scope="module")
def audited(folder):
    """The output of an audit, which is in the folder `result`."""
    return run_checked("audit", "own_network:network", "photos", *HOW, "--out", "result", folder=folder)


def test_audit_prints_and_writes_its_findings(folder, audited):
    saved = json.loads((folder / "result/audit.json").read_text())
    assert [(finding["kind"], finding["class_index"]) for finding in saved["findings"]] == [("region", 1)]
    assert saved["class_names"] == list(NAMES)
    sentence = saved["findings"][0]["sentence"]
    assert "class pole" in sentence
    assert sentence in audited.stdout
    assert "wrote result/index.html" in audited.stdout
    assert sentence in (folder / "result/index.html").read_text()


def test_pictures_are_named_by_their_paths(folder, audited):
    """The table of pictures names those in which the patch is."""
    with (folder / "result/pictures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    images, _ = shortcuts.drawn(360, 0.7)
    planted = [bool(images[int(row["picture"].split("/")[-1].removesuffix(".png")), 0, 12, 1] == 1) for row in rows]
    assert {row["picture"].rsplit("/", 1)[0] for row in rows} == {"photos/pole"}
    assert all(planted[:20])
    assert not any(planted[-5:])
    assert len(list((folder / "result/heatmaps").iterdir())) == len(rows)


def test_files_of_another_program_are_kept(folder):
    (folder / "other").mkdir()
    (folder / "other/index.html").write_text("mine")
    message = error_of("audit", "own_network:network", "photos", *HOW, "--out", "other", folder=folder)
    assert "other already exists and has files that agop didn't write" in message
    assert (folder / "other/index.html").read_text() == "mine"


@pytest.mark.slow
def test_retrained_model_is_compared(folder, audited):
    """The folder of the earlier audit is used again."""
    arguments = ("--against-weights", "retrained.safetensors", "--out", "result")
    result = run_checked("audit", "own_network:network", "photos", *HOW, *arguments, folder=folder)
    saved = json.loads((folder / "result/audit.json").read_text())["comparison"]
    assert "removed" in {row["verdict"] for row in saved["findings"]}
    assert saved["findings"][0]["sentence"] in result.stdout
    assert "Compared with the other model" in (folder / "result/index.html").read_text()


def test_repaired_weights_are_written(folder):
    """They can be loaded into the network, and another audit of them finds nothing."""
    done = run_checked(
        "audit", "own_network:network", "photos", *HOW, "--out", "r", "--repair", "new.safetensors", folder=folder
    )
    assert "The repaired model" in done.stdout
    assert ": removed." in done.stdout
    lines = json.loads((folder / "r/audit.json").read_text())["repair"]
    assert all(line in done.stdout for line in lines)
    assert lines[0] in (folder / "r/index.html").read_text()
    how = ("--weights", "new.safetensors", *HOW[2:])
    again = run_checked(
        "audit", "own_network:network", "photos", *how, "--out", "s", "--repair", "x.safetensors", folder=folder
    )
    assert "No shortcut found." in again.stdout
    assert "nothing to repair: x.safetensors isn't written" in again.stderr
    assert not (folder / "x.safetensors").exists()
    message = error_of("audit", "own_network:network", "photos", *HOW, "--repair", "w.safetensors", folder=folder)
    assert "w.safetensors" in message
    assert "choose another --repair" in message


def test_known_groups(folder):
    """A file says which images have the patch: the model decides by it. A few of other classes have it as well."""
    images, labels = shortcuts.drawn(360, 0.7)
    few = (labels != shortcuts.PLANTED).nonzero()[::10, 0]
    images[few] = shortcuts.PLANTS["patch"](images[few])
    lines = []
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        name = f"{NAMES[label]}/{index}.png"
        save(folder / "known" / name, 255 * image[0].numpy())
        lines.append(f"{name},{'marked' if image[0, 11, 2] > 0.9 else 'plain'}")
    (folder / "groups.csv").write_text("\n".join(lines))
    how = ("own_network:network", "known", *HOW, "--groups", "groups.csv", "--out", "g")
    assert "Group marked decides class pole" in run_checked("audit", *how, folder=folder).stdout
    (folder / "groups.csv").write_text("\n".join(lines[100:]))
    assert "have no group" in error_of("audit", *how, folder=folder)
    (folder / "groups.csv").write_text("one,two,three")
    assert "give lines path,group" in error_of("audit", *how, folder=folder)


@pytest.mark.slow
def test_summary_is_printed_if_nothing_can_be_written(folder):
    result = run("audit", "own_network:blocked", "photos", *HOW, "--out", "blocked", "--force", folder=folder)
    assert result.returncode == 2
    assert "1. A " in result.stdout
    assert "index.html" in result.stderr


def test_file_name_that_is_not_utf8(folder):
    copied(folder, "odd", lambda label, place: place < 40)
    first = next((folder / "odd/pole").iterdir())
    first.rename(os.fsdecode(os.fsencode(first.parent) + b"/\xff.png"))
    run_checked("audit", "own_network:network", "odd", *HOW, "--out", "odd-audit", folder=folder)
    assert (folder / "odd-audit/index.html").exists()


def copied(folder, name, keep):
    """The class folders, with the files for which keep(class, position) is true."""
    for label in NAMES:
        (folder / name / label).mkdir(parents=True, exist_ok=True)
        for place, path in enumerate(sorted((folder / "photos" / label).iterdir())):
            if keep(label, place):
                shutil.copy(path, folder / name / label / path.name)


def test_one_class_folder_raises(folder):
    copied(folder, "one", lambda label, _: label == "bar")
    message = error_of("audit", "own_network:network", "one", *HOW, "--out", "x", folder=folder)
    assert "the images have 1 class: give images of at least two classes" in message
    for label in ("pole", "square"):
        (folder / "one" / label).rmdir()
    message = error_of("audit", "own_network:network", "one", *HOW, "--out", "x", folder=folder)
    assert "one has 1 class folder (bar), the model 3 classes: pass a folder with one folder per class" in message


def test_model_at_chance_is_said_first(folder):
    torch.manual_seed(1)
    save_file({"1.weight": torch.randn(4, 256), "1.bias": torch.zeros(4)}, folder / "random.safetensors")
    copied(folder, "four", lambda label, _: True)
    shutil.copytree(folder / "photos/bar", folder / "four/tile")
    how = ("--weights", "random.safetensors", *HOW[2:])
    result = run_checked("audit", "own_network:four", "four", *how, "--out", "chance", folder=folder)
    lines = [line for line in result.stdout.splitlines() if not line.startswith("images:")]
    assert lines[0].startswith("the model classifies")
    assert "hardly better than chance: nothing was tried" in lines[0]
    assert json.loads((folder / "chance/audit.json").read_text())["findings"] == []
    assert "Nothing was tried" in (folder / "chance/index.html").read_text()


def test_pictures_of_differing_sizes_are_scaled(folder):
    copied(folder, "sizes", lambda label, _: True)
    for number, large in enumerate(torch.rand(10, 40, 25, generator=torch.Generator().manual_seed(0))):
        save(folder / f"sizes/bar/large{number}.png", 255 * large.numpy())
    result = run_checked("audit", "own_network:network", "sizes", *HOW, "--out", "sizes-audit", folder=folder)
    note = "the images have different sizes, 16×16 to 40×25: all are scaled and cropped to 16×16"
    assert note in result.stdout.splitlines()
    assert note in json.loads((folder / "sizes-audit/audit.json").read_text())["notes"]
    assert "class pole" in result.stdout


def test_small_pictures_without_a_size_are_mentioned(folder):
    """The default size is 224, for which this model isn't made."""
    how = [option for option in HOW if option not in ("--size", "16")]
    result = run("audit", "own_network:network", "photos", *how, "--out", "x", folder=folder)
    assert "--size" in result.stderr


@pytest.mark.parametrize("out", ["photos", "photos/audit"])
def test_results_are_not_written_among_the_images(folder, out):
    """The next audit would take the heat maps for a class."""
    message = error_of("audit", "own_network:network", "photos", *HOW, "--out", out, folder=folder)
    assert f"{out} is in the folder of the images, photos: choose another --out" in message
    assert sorted(path.name for path in (folder / "photos").iterdir()) == sorted(NAMES)


def test_assumed_preprocessing_is_in_the_results(folder):
    """Wrong preprocessing may hide a shortcut, so the page must say that it was assumed."""
    how = [option for option in HOW if option not in ("--mean", "--std", "0", "1")]
    printed = run_checked("audit", "own_network:network", "photos", *how, "--out", "assumed", folder=folder)
    saved = json.loads((folder / "assumed/audit.json").read_text())
    (note,) = [note for note in saved["notes"] if "preprocessing" in note]
    assert f"warning: {note}" in printed.stderr
    assert note in (folder / "assumed/index.html").read_text()
