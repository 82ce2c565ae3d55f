"""Run folders from elsewhere: links and devices in them aren't followed."""

import os

import pytest

from agop.errors import FileError
from agop.report.run import Run
from tests.command import error_of
from tests.report_runs import write_evaluation

SECRET = "a private text"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    write_evaluation(tmp_path / "run", {"vanilla": [0.3, 0.5]}, "scans")
    (tmp_path / "private.txt").write_text(SECRET)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "name", ["index.html", "rows.jsonl", "about.json", "cells/scans-given-000/scores.safetensors", "report.md", ".lock"]
)
def test_a_link_is_neither_read_nor_written_through(folder, name):
    private = folder.parent / "private.txt"
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(private)
    for arguments in (("report", folder), ("report", folder, "--out", folder / "report.md")):
        assert f"{folder / name} is a link: replace it by the file itself" in error_of(*arguments, folder=folder.parent)
    assert private.read_text() == SECRET
    assert not [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and SECRET in path.read_text(errors="replace")
    ]


def test_linked_folders_and_pipes_are_refused(folder):
    (folder / "cells").rename(folder.parent / "cells")
    (folder / "cells").symlink_to(folder.parent / "cells")
    with pytest.raises(FileError, match="cells is a link"):
        Run(folder)
    (folder / "cells").unlink()
    (folder.parent / "cells").rename(folder / "cells")
    os.mkfifo(folder / "cells" / "scans-given-000" / "pipe")
    with pytest.raises(FileError, match="pipe is not a regular file"):
        Run(folder)


def test_a_link_to_the_whole_folder_is_followed(folder):
    (folder.parent / "latest").symlink_to(folder)
    assert Run(folder.parent / "latest").spec == Run(folder).spec
