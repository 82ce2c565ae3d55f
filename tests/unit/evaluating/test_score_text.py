"""The printed table of an evaluation."""

import re

import pytest
import torch

import agop
from agop.report.page.winner_grids import winner_grids
from agop.report.run import Run
from agop.runs.controls import AGOP_CONTROLS, CONTROLS
from tests import zoo

CELL = re.compile(r"(\d\.\d{3}) (\[[^]]*\])(?: ([★≈▲]))?|–")


@pytest.fixture(scope="module")
def evaluation():
    """Twenty images with masks in different places; a few are empty."""
    model, images = zoo.build("plain"), zoo.images(20)
    masks = torch.zeros(20, 12, 12, dtype=torch.bool)
    for place, mask in enumerate(masks[:-3]):
        mask[place % 4 : place % 4 + 4, 3:7] = True
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    return agop.evaluate(model, images, masks, prior=prior, metrics=["iou", "energy", "deletion"], layer="body.0")


def test_means_intervals_and_marks_are_those_of_the_report(evaluation, tmp_path):
    evaluation.save(tmp_path / "run")
    grids = [grid for grid in winner_grids(Run(tmp_path / "run")) if grid.metric != "milliseconds"]
    lines = str(evaluation).splitlines()
    for place, method in enumerate(evaluation.scores):
        (line,) = (line for line in lines if line.startswith(f"{method} "))
        printed = [(cell[1], cell[2], cell[3] or "") for cell in CELL.finditer(line)]
        squares = [next(iter(grid.lines.values()))[place] for grid in grids]
        assert printed == [(square.mean, square.interval, square.mark) for square in squares]


def test_table_shows_directions_the_number_of_images_and_what_the_marks_mean(evaluation):
    lines = str(evaluation).splitlines()
    assert lines[0] == "means over images (N = 20) with 95 % intervals"
    assert re.search(r"mIoU +Energy-GT +Del ↓ +ms", lines[1])
    assert "★ best method" in lines
    assert "↓ lower is better" in lines
    assert any(line.startswith("≈ not significantly different from it") for line in lines)
    (controls,) = (line for line in lines if line.startswith("controls, which don't depend on the model: "))
    independent = set(controls.partition(": ")[2].split(", "))
    assert independent | {"activation-norm"} == set(CONTROLS) - set(AGOP_CONTROLS)
    assert "controls, which depend on the model in part: activation-norm" in lines


def test_wide_table_is_split_by_columns():
    model, images, masks = zoo.build("plain"), zoo.images(4), torch.zeros(4, 12, 12, dtype=torch.bool)
    masks[:, 2:5, 3:6] = True
    lines = str(agop.evaluate(model, images, masks, "vanilla")).splitlines()
    assert max(map(len, lines)) <= 120
    assert sum(line.startswith("vanilla ") for line in lines) == 2
    labels = [agop.metrics.get(name).label for name in agop.metrics.default_names()]
    assert all(sum(label in line.split() for line in lines) == 1 for label in labels)


def test_one_image_has_no_intervals_and_an_undefined_score_is_a_dash():
    model, images, masks = zoo.build("plain"), zoo.images(1), torch.zeros(1, 12, 12, dtype=torch.bool)
    lines = str(agop.evaluate(model, images, masks, "vanilla", metrics=["iou", "deletion"])).splitlines()
    assert lines[0] == "means over images (N = 1) with 95 % intervals"
    assert re.fullmatch(r"vanilla +– +0\.\d{3} ★ +\S+", lines[2])
