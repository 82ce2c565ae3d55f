"""The run folder: specification, rows and cells, as written and as read."""

import json
from contextlib import suppress
from dataclasses import asdict, replace

import numpy as np
import pytest

from agop.errors import FileError, InputError
from agop.report.folder import FORMAT, CellFiles, Gallery, RunSpec, new_run, read, remove_run, write_json
from agop.report.formats import registry
from agop.report.run import Run
from tests.report_runs import write_evaluation, write_xai_tris

CELL = "cells/scans-given-000"
SPEC = RunSpec("xai-tris", ("linear", "xor"), ("plain", "other"), 2, ("vanilla",), ("iou",), options={"size": [3, 4]})


@pytest.fixture
def folder(tmp_path):
    write_evaluation(tmp_path, {"random": [0.1, 0.2], "vanilla": [0.3, 0.5]}, "scans")
    zeros = np.zeros((2, 4, 4))
    pictures = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    Gallery(pictures, np.array([0, -1]), np.array([0, 1]), {"true": zeros}, {"a/b": zeros}).save(tmp_path / CELL)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "seeds is 0: pass 1 or more"),
        ({"scenarios": ()}, "scenarios are empty"),
        ({"methods": ("vanilla", "vanilla")}, "vanilla, vanilla: pass one or more different names"),
        ({"scenarios": ("../../etc",)}, "becomes part of a folder's name"),
        ({"backgrounds": ("a\\b",)}, "becomes part of a folder's name"),
        ({"scenarios": ("x" * 300,)}, "pass one to 200 bytes of printable text"),
        ({"scenarios": ("a\nb",)}, "pass one to 200 bytes of printable text"),
        ({"intervals": "days"}, "pass seeds or samples"),
        ({"absent": ("xor/plain", "xor/other")}, "xor has none of the backgrounds plain, other: choose another"),
    ],
)
def test_what_no_run_can_compute_or_name_raises(changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        replace(SPEC, **changes)
    write_json(tmp_path / "spec.json", asdict(SPEC) | changes)
    with pytest.raises(FileError, match=r"spec\.json is damaged .*: run again into another folder"):
        RunSpec.load(tmp_path)


def test_a_saved_specification_is_read_back(tmp_path):
    SPEC.save(tmp_path)
    assert not RunSpec.load(tmp_path).differences(SPEC)
    values = json.loads((tmp_path / "spec.json").read_text())
    write_json(tmp_path / "spec.json", values | {"checksum": "of an earlier version", "seeds": 3})
    assert RunSpec.load(tmp_path).differences(SPEC) == {"seeds": (3, 2)}


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1, None])
def test_another_format_raises_and_says_what_to_do(number, tmp_path):
    write_json(tmp_path / "spec.json", asdict(SPEC) | {"format": number})
    with pytest.raises(FileError, match=rf"its format is .*, not {FORMAT}: run again .*--fresh"):
        RunSpec.load(tmp_path)


def test_the_collected_file_of_all_rows_is_not_read(folder):
    rows = read(folder)
    (folder / "rows.jsonl").write_text("")
    assert read(folder) == rows


def test_a_missing_cell_is_an_incomplete_run(tmp_path):
    write_xai_tris(tmp_path, seeds=2)
    cell = tmp_path / "cells" / "linear-uncorrelated-001"
    cell.rename(cell.with_name(f".{cell.name}.part"))
    with pytest.raises(FileError, match=r"1 of 16 cells are missing.*run the bench again"):
        Run(tmp_path)


@pytest.mark.parametrize("name", ["rows.jsonl", "timings.jsonl", "scores.safetensors", "gallery.safetensors"])
def test_truncated_files_are_named_with_the_fix(folder, name):
    content = (folder / CELL / name).read_bytes()
    (folder / CELL / name).write_bytes(content[:-4])
    with pytest.raises(FileError, match=rf"{name} is damaged .*: delete .*{CELL} and run again"):
        registry.get("html")(Run(folder))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"value": "0.3"}, "value of a row is '0.3'"),
        ({"seed": 1}, "rows of another cell"),
        ({"scenario": "other"}, "rows of another cell"),
        ({"method": ...}, "a row lacks method"),
    ],
)
def test_malformed_rows_raise(folder, row, message):
    path = folder / CELL / "rows.jsonl"
    first, *others = path.read_text().splitlines()
    changed = {name: value for name, value in (json.loads(first) | row).items() if value is not ...}
    path.write_text("\n".join([json.dumps(changed), *others, ""]))
    with pytest.raises(FileError, match=message):
        Run(folder)


def test_rows_without_a_method_of_the_specification_raise(folder):
    path = folder / CELL / "rows.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(FileError, match=r"scans-given-000 has no row for vanilla, iou\): run again"):
        Run(folder)


def test_a_gallery_is_read_back_and_a_cell_has_its_versions(folder):
    gallery = Gallery.load(folder / CELL)
    assert gallery.labels.tolist() == [0, -1]
    assert gallery.places is None
    assert (*gallery.masks, *gallery.maps) == ("true", "a/b")
    assert CellFiles(folder / CELL).versions.keys() == {"python", "agop", "torch", "numpy"}


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_removing_a_run_keeps_other_files(folder):
    (folder / "notes.txt").touch()
    remove_run(folder)
    assert names(folder) == {"notes.txt"}


def test_a_new_run_replaces_the_old_one_only_if_it_is_complete(folder):
    (folder / "index.html").touch()
    before = names(folder)
    with suppress(ZeroDivisionError), new_run(folder) as new:
        write_evaluation(new, {"vanilla": [0.5]}, "photos")
        raise ZeroDivisionError
    assert names(folder) == before
    with new_run(folder) as new:
        write_evaluation(new, {"vanilla": [0.5]}, "photos")
    assert Run(folder).spec.scenarios == ("photos",)
    assert not [name for name in names(folder) if "scans" in name or name.startswith(("index", ".new"))]
