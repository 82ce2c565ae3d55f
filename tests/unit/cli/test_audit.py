"""`agop audit`: a summary, JSON, tensors and a page from class folders."""

import json

import pytest
from safetensors.torch import save_file

from tests import shortcuts
from tests.command import error_of, run_checked
from tests.image_files import save

NAMES = ("bar", "pole", "square")
NETWORK = """
from torch import nn
def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 3),
    )
"""
HOW = ("--weights", "w.safetensors", "--size", "16", "--mean", "0", "--std", "1", "--gray", "--per-class", "60")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a shortcut and its images."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "own_network.py").write_text(NETWORK)
    images, labels = shortcuts.drawn(240, 0.7)
    save_file(shortcuts.trained(images, labels).state_dict(), folder / "w.safetensors")
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        save(folder / "photos" / NAMES[label] / f"{index}.png", 255 * image[0].numpy())
    return folder


def test_audit_prints_and_writes_its_findings(folder):
    result = run_checked("audit", "own_network:network", "photos", *HOW, "--out", "result", folder=folder)
    saved = json.loads((folder / "result/audit.json").read_text())
    assert [(finding["kind"], finding["class_index"]) for finding in saved["findings"]] == [("region", 1)]
    assert saved["class_names"] == list(NAMES)
    sentence = saved["findings"][0]["sentence"]
    assert "class pole" in sentence
    assert sentence in result.stdout
    assert "wrote result/index.html" in result.stdout
    assert sentence in (folder / "result/index.html").read_text()
    # An earlier audit is replaced, another file isn't.
    (folder / "other").mkdir()
    (folder / "other/index.html").write_text("mine")
    message = error_of("audit", "own_network:network", "photos", *HOW, "--out", "other", folder=folder)
    assert "isn't a result of this command" in message
    assert (folder / "other/index.html").read_text() == "mine"


def test_wrong_number_of_class_folders_raises(folder):
    save(folder / "two/a/1.png", [[0] * 16] * 16)
    save(folder / "two/b/1.png", [[0] * 16] * 16)
    message = error_of("audit", "own_network:network", "two", *HOW, folder=folder)
    assert "2 class folders (a, b), the model 3 classes" in message
