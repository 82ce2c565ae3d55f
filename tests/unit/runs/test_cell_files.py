"""Files of a finished cell: read only if they are as they were written."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from agop.errors import FileError
from agop.report.run import Run
from agop.runs.cell_files import CellFiles, seal
from agop.runs.gallery import Gallery
from agop.runs.rows import read
from tests.report_runs import write_evaluation, write_xai_tris

CELL = "cells/scans-given-000"


@pytest.fixture
def folder(tmp_path):
    write_evaluation(tmp_path, {"random": [0.1, 0.2], "vanilla": [0.3, 0.5]}, "scans")
    zeros = np.zeros((2, 4, 4))
    pictures = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    Gallery(pictures, np.array([0, -1]), np.array([0, 1]), {"true": zeros}, {"vanilla": zeros}).save(tmp_path / CELL)
    seal(tmp_path / CELL)
    return tmp_path


def test_rows_cut_at_a_line_end_raise_with_the_counts_and_the_fix(tmp_path):
    write_xai_tris(tmp_path, seeds=2)
    path = tmp_path / "cells" / "linear-uncorrelated-001" / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:20]))
    with pytest.raises(
        FileError, match=rf"rows.jsonl is damaged \(it has 20 rows instead of {len(lines)}\): delete .*-001"
    ):
        Run(tmp_path)
    (tmp_path / "cells" / "linear-uncorrelated-001" / "cell.json").unlink()
    with pytest.raises(FileError, match=r"1 of 16 cells are missing.*run the bench again"):
        Run(tmp_path)


def test_the_collected_file_of_all_rows_is_not_believed(folder):
    rows = read(folder)
    (folder / "rows.jsonl").write_text("")
    assert read(folder) == rows


@pytest.mark.parametrize(
    "name", ["rows.jsonl", "timings.jsonl", "scores.safetensors", "gallery.safetensors", "cell.json"]
)
def test_every_file_that_a_page_reads_is_verified(folder, name):
    from agop.report.page import page

    content = bytearray((folder / CELL / name).read_bytes())
    content[-4] ^= 1
    (folder / CELL / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name} is damaged .*: delete .*{CELL} and run again"):
        page(Run(folder))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"value": "0.3"}, "value of a row is '0.3'"),
        ({"seed": 1}, "rows of another cell"),
        ({"scenario": "other"}, "rows of another cell"),
        ({"method": None}, "method of a row is None"),
        ({"undefined": {"empty": "3"}}, "undefined of a row is {'empty': '3'}"),
    ],
)
def test_malformed_rows_raise_although_the_checksum_is_right(folder, row, message):
    path = folder / CELL / "rows.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | row), *others, ""]))
    seal(folder / CELL)
    with pytest.raises(FileError, match=message):
        Run(folder)


def test_rows_without_a_method_of_the_specification_raise(folder):
    path = folder / CELL / "rows.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    seal(folder / CELL)
    with pytest.raises(FileError, match=r"scans-given-000 has no row for vanilla, iou\): run again"):
        Run(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("pictures", np.zeros((2, 4, 4), dtype=np.uint8), r"not numbers of shape \(…, …, …, 3\)"),
        ("pictures", np.zeros((2, 4, 4, 3)), "pictures are float64, not uint8"),
        ("labels", np.zeros(3, dtype=int), r"labels is int64 of shape \(3,\), not numbers of shape \(2\)"),
        ("labels", np.zeros(2), "labels aren't indices"),
        ("predicted", np.array([-1, 0]), "predicted aren't indices"),
        ("places", np.array([-1, 0]), "places aren't indices"),
        ("maps/vanilla", np.zeros((2, 4, 5)), r"not numbers of shape \(2, 4, 4\)"),
        ("maps/vanilla", np.full((2, 4, 4), 1e200), "numbers above 1e\\+100"),
    ],
)
def test_a_gallery_of_other_shapes_raises(folder, name, array, message):
    path = folder / CELL / "gallery.safetensors"
    path.write_bytes(save(load(path.read_bytes()) | {name: array}))
    seal(folder / CELL)
    with pytest.raises(FileError, match=message):
        Gallery.load(folder / CELL)


def test_a_cell_records_the_versions_that_made_it(folder):
    assert CellFiles(folder / CELL).versions.keys() == {"python", "agop", "torch", "numpy"}
