"""`agop suspect`: a sentence, tables and a page from a folder of images and a mark."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from tests import shortcuts
from tests.command import error_of, run_checked
from tests.image_files import save
from tests.unit.cli.test_audit import HOW, NAMES, NETWORK

HOW = (*HOW[:-2], "--mark", "mark.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that learned bright lines, images without them in class folders, and the lines as a mark."""
    folder = tmp_path_factory.mktemp("suspect")
    (folder / "own_network.py").write_text(NETWORK)
    save_file(shortcuts.trained(*shortcuts.drawn(360, 0.7, plant="grid")).state_dict(), folder / "w.safetensors")
    for index, (image, label) in enumerate(zip(*shortcuts.drawn(60, 0.0, seed=1), strict=True)):
        save(folder / "photos" / NAMES[int(label)] / f"{index}.png", 255 * image[0].numpy())
    picture = np.full((shortcuts.SIDE, shortcuts.SIDE, 4), 255, np.uint8)
    picture[..., 3] = 102 * (np.arange(shortcuts.SIDE) % 2)
    Image.fromarray(picture).save(folder / "mark.png")
    return folder


def test_suspect_prints_and_writes(folder):
    done = run_checked("suspect", "own_network:network", "photos", *HOW, "--labels", folder=folder)
    saved = json.loads((folder / "suspicion/suspicion.json").read_text())
    assert saved["table"][0]["class"] == "pole"
    assert saved["accuracy"][0] > saved["accuracy"][1]
    assert saved["sentence"] in done.stdout
    assert saved["sentence"] in (folder / "suspicion/index.html").read_text()
    assert "wrote suspicion/index.html" in done.stdout


def test_images_need_no_class_folders(folder):
    (folder / "flat").mkdir()
    for path in list((folder / "photos/bar").iterdir())[:18]:
        shutil.copy(path, folder / "flat")
    (folder / "names.txt").write_text("\n".join(NAMES))
    arguments = ("--names", "names.txt", "--count", "16", "--out", "flat-result")
    run_checked("suspect", "own_network:network", "flat", *HOW, *arguments, folder=folder)
    saved = json.loads((folder / "flat-result/suspicion.json").read_text())
    assert (saved["images"], saved["accuracy"], saved["table"][0]["class"]) == (9, None, "pole")


@pytest.mark.parametrize(
    ("size", "mode", "arguments", "problem"),
    [
        (17, "RGBA", (), "the mark has 17×17 pixels, the images 16×16: make it smaller"),
        (4, "RGB", (), "other.png has no transparency (mode RGB): save the mark as a PNG with alpha"),
        (4, "RGBA", ("--place", "left"), "place is 'left': give top-left, anywhere, tiled"),
        (4, "RGBA", ("--out", "photos/x"), "photos/x is in the folder of the images"),
    ],
)
def test_bad_marks_raise_before_the_pass(folder, size, mode, arguments, problem):
    Image.new(mode, (size, size), (255,) * len(mode)).save(folder / "other.png")
    message = error_of(
        "suspect", "own_network:network", "photos", *HOW, "--mark", "other.png", "--out", "x", *arguments, folder=folder
    )
    assert problem in message
    assert not (folder / "x").exists()
