"""A run is replaced by a new one as a whole."""

import itertools
import os
import shutil
import sys

import pytest

from agop.errors import FileError
from agop.runs.replacing import finish_replacing, new_run


class Killed(BaseException):
    """Ends a process as SIGKILL does: it can't change any file afterwards."""


@pytest.fixture(scope="module")
def kill_at():
    """A function that raises Killed at the n-th change of a file from now on, and at every later one; None: never."""
    left = [None]
    events = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}

    def hook(event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if left[0] is not None and (event in events or writes):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    sys.addaudithook(hook)
    return lambda count: left.__setitem__(0, count)


def write(folder, name):
    """A small run: every file holds the name."""
    (folder / "cells" / name).mkdir(parents=True)
    for file in ("spec.json", "rows.jsonl", f"cells/{name}/rows.jsonl"):
        (folder / file).write_text(name)


def replace(folder, name, then=lambda: None):
    with new_run(folder) as new:
        write(new, name)
        then()


@pytest.fixture
def run(tmp_path):
    """A folder with the run "old", its report, and a file of the user."""
    write(tmp_path / "run", "old")
    for name in ("index.html", "notes.txt"):
        (tmp_path / "run" / name).write_text("old")
    return tmp_path / "run"


def content(folder):
    """Name of the run in a folder, after checking that all its files belong to it."""
    name = (folder / "spec.json").read_text()
    assert (folder / "rows.jsonl").read_text() == name
    assert [path.name for path in (folder / "cells").iterdir()] == [name]
    assert (folder / "cells" / name / "rows.jsonl").read_text() == name
    assert (folder / "index.html").exists() == (name == "old")
    assert (folder / "notes.txt").exists()
    return name


def test_kill_at_any_moment_leaves_the_old_run_or_the_new_one(run, kill_at):
    names = []
    for count in itertools.count():
        folder = run.with_name(f"run{count}")
        shutil.copytree(run, folder)
        kill_at(count)
        try:
            replace(folder, "new")
        except Killed:
            pass
        else:
            break
        finally:
            kill_at(None)
        finish_replacing(folder)
        names.append(content(folder))
        replace(folder, "newer")  # what the kill left is not in the way
        assert content(folder) == "newer"
    assert names == sorted(names, reverse=True)
    assert set(names) == {"old", "new"}
    assert content(folder) == "new"
    assert {path.name for path in folder.iterdir()} == {"cells", "notes.txt", "rows.jsonl", "spec.json"}


def test_kill_while_an_interrupted_replacement_is_finished_changes_nothing(run, kill_at):
    write(run / ".new", "new")
    for count in itertools.count():
        kill_at(count)
        try:
            finish_replacing(run)
        except Killed:
            continue
        else:
            break
        finally:
            kill_at(None)
    assert content(run) == "new"


def test_error_while_writing_keeps_the_old_run_and_leaves_nothing_behind(run):
    with pytest.raises(ZeroDivisionError):
        replace(run, "new", then=lambda: 1 / 0)
    assert content(run) == "old"
    assert {path.name for path in run.iterdir()} == {
        "cells", "index.html", "notes.txt", "rows.jsonl", "spec.json",
    }  # fmt: skip


def test_link_in_place_of_a_new_run_is_not_followed(run, tmp_path):
    write(tmp_path / "other", "other")
    (run / ".new").symlink_to(tmp_path / "other")
    finish_replacing(run)
    assert content(run) == "old"
    assert (tmp_path / "other" / "spec.json").exists()


@pytest.mark.parametrize("name", ["lock", "spec.json", "cells"])
def test_link_in_a_new_run_raises(run, tmp_path, name):
    (tmp_path / "private").write_text("mine")
    write(run / ".new", "new")
    shutil.rmtree(run / ".new" / name) if name == "cells" else (run / ".new" / name).unlink(missing_ok=True)
    (run / ".new" / name).symlink_to(tmp_path / "private")
    with pytest.raises(FileError, match=f"{name} is a link"):
        finish_replacing(run)
    assert (tmp_path / "private").read_text() == "mine"
    assert content(run) == "old"
