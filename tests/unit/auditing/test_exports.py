"""Exports of an audit: tables, and heat maps for FiftyOne."""

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import agop
from tests import shortcuts

NAMES = ("bar", "=pole", "square")


@pytest.fixture(scope="module")
def images():
    return shortcuts.drawn(360, 0.7)


@pytest.fixture(scope="module")
def audit(images):
    model = shortcuts.trained(*images)
    return agop.audit(model, *images, per_class=80, progress=False, class_names=NAMES)


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_findings_table(audit, tmp_path):
    audit.save(tmp_path)
    rows = table(tmp_path / "findings.csv")
    assert len(rows) == len(audit.findings) == 1
    (row,), (finding,) = rows, audit.findings
    assert (row["finding"], row["kind"], row["class_index"]) == ("1", "region", "1")
    assert row["class"] == "'=pole"  # not a formula
    assert [float(row[name]) for name in ("effect", "low", "high")] == [finding.effect, *finding.interval]
    area = torch.zeros_like(finding.region)
    area[int(row["top"]) : int(row["bottom"]), int(row["left"]) : int(row["right"])] = True
    assert torch.equal(area, finding.region)
    assert row["sentence"] == finding.sentence


def test_scores_tell_which_pictures_contain_the_patch(audit, images, tmp_path):
    """A picture is the position of an image of the data, and its score is high if the patch is in that image."""
    audit.save(tmp_path)
    rows = table(tmp_path / "pictures.csv")
    assert len(rows) == 80  # all images of the class that were used
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] < 0.2
    assert scores[0] == 1
    pixels, labels = images
    planted = [bool(pixels[int(row["picture"]), 0, 12, 1] == 1) for row in rows]
    assert {int(labels[int(row["picture"])]) for row in rows} == {shortcuts.PLANTED}
    assert len({row["picture"] for row in rows}) == len(rows)
    agreement = np.mean([(row["contains"] == "True") == truth for row, truth in zip(rows, planted, strict=True)])
    assert agreement >= 0.9


def test_heat_maps_and_their_paths(audit, tmp_path):
    audit.save(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "pictures.jsonl").read_text().splitlines()]
    rows = table(tmp_path / "pictures.csv")
    assert [line["picture"] for line in lines] == [row["picture"] for row in rows]
    assert [line["class"] for line in lines] == ["=pole"] * len(rows)
    for line, saliency in zip(lines, audit.findings[0].maps, strict=True):
        with Image.open(tmp_path / line["heatmap"]) as image:
            assert image.mode == "L"
            levels = np.asarray(image)
        assert levels.max() == 255
        assert np.allclose(levels, 255 * saliency / saliency.max(), atol=0.51)
    assert len(list((tmp_path / "heatmaps").iterdir())) == len(rows)


def test_heat_maps_of_an_earlier_audit_are_removed(audit, tmp_path):
    audit.save(tmp_path)
    (tmp_path / "heatmaps/finding7-0001.png").write_bytes(b"old")
    (tmp_path / "heatmaps/mine.png").write_bytes(b"mine")
    audit.save(tmp_path)
    names = {path.name for path in (tmp_path / "heatmaps").iterdir()}
    assert "finding7-0001.png" not in names
    assert "mine.png" in names


@pytest.mark.slow
def test_paths_of_a_loader_name_the_pictures(images):
    pixels, labels = images
    batches = [
        {"images": part, "labels": classes, "paths": [f"photos/{start}-{place}.png" for place in range(len(part))]}
        for start, (part, classes) in enumerate(zip(pixels.split(50), labels.split(50), strict=True))
    ]
    audit = agop.audit(shortcuts.trained(pixels, labels), batches, per_class=80, progress=False)
    contained = audit.findings[0].contained
    for picture, image in zip(contained.pictures, contained.ranked, strict=True):
        start, place = picture.removeprefix("photos/").removesuffix(".png").split("-")
        assert torch.equal(pixels[50 * int(start) + int(place)], image)


def test_example_for_fiftyone_says_what_is_missing(tmp_path):
    if importlib.util.find_spec("fiftyone") is not None:
        pytest.skip("FiftyOne is installed")
    example = Path(__file__).parents[3] / "examples/with_fiftyone.py"
    result = subprocess.run([sys.executable, example, tmp_path], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "this example needs FiftyOne: pip install fiftyone\n")
