"""Deleting a run: all of it, and nothing else."""

import json

import pytest

from agop.errors import AGOPError, InputError
from agop.runs.removing import remove_run
from tests.report_runs import write_xai_tris

CELL = "cells/linear-uncorrelated-000"
STRANGERS = ["letter.txt", "notes/letter.txt", "cells/letter.txt", f"{CELL}/letter.txt", f"{CELL}/snapshots/letter.txt",
             "cells/other-cell-000/rows.jsonl", ".hidden", "rows.jsonl.bak"]  # fmt: skip


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_xai_tris(folder, seeds=1, scenarios=("linear",))
    for name in (
        f"{CELL}/snapshots/step-00000100.safetensors", f"{CELL}/training.pt", f"{CELL}/agop-training.safetensors",
        "cells/.linear-correlated-000.part/gallery.safetensors", "index.html", ".agop-x1_y.part",
    ):  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return folder


def test_all_files_of_a_run_are_deleted_except_its_lock(folder):
    (folder / ".lock").write_text("mine")
    remove_run(folder)
    assert contents(folder) == {(folder / ".lock").relative_to(folder): b"mine"}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_file_that_no_run_writes_keeps_everything(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    before = contents(folder)
    with pytest.raises(InputError, match=r"also contains .*move it away"):
        remove_run(folder)
    assert contents(folder) == before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"openapi": "3.0"}', '{"benchmark": "x", "seeds": 1}'])
def test_a_folder_with_another_spec_json_is_not_a_run(folder, content):
    (folder / "spec.json").write_text(content)
    before = contents(folder)
    with pytest.raises(AGOPError, match="delete the folder yourself"):
        remove_run(folder)
    assert contents(folder) == before


def test_runs_of_other_formats_can_be_deleted(folder):
    values = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(values | {"format": 2}))
    remove_run(folder)
    assert not contents(folder)


def test_a_link_keeps_everything(folder, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "rows.jsonl").write_text("mine")
    (folder / "cells" / "linear-correlated-000").rename(tmp_path / "cell")
    (folder / "cells" / "linear-correlated-000").symlink_to(tmp_path / "private")
    with pytest.raises(AGOPError, match="is a link"):
        remove_run(folder)
    assert (tmp_path / "private" / "rows.jsonl").read_text() == "mine"
    assert (folder / "spec.json").exists()
