"""The start of a run: new, resumed, refused."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from agop.bench import run_folder as module
from agop.bench.run_folder import begin, run_folder
from agop.errors import AGOPWarning, FileError, InputError
from agop.report.run import Run
from agop.runs.about import About, versions
from agop.runs.cell_files import CellFiles, seal
from agop.runs.spec import RunSpec
from tests.report_runs import write_cells

SPEC = RunSpec("xai-tris", ("linear",), ("uncorrelated",), 2, ("vanilla",), ("iou",))
ROWS = [
    {
        "scenario": "linear",
        "background": "uncorrelated",
        "seed": seed,
        "method": "vanilla",
        "metric": "iou",
        "value": 0.5,
    }
    for seed in (0, 1)
]
KILLED = """
import os, signal, sys
from pathlib import Path
from agop.bench.run_folder import begin
from agop.runs.spec import RunSpec
RunSpec.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
begin(RunSpec("xai-tris", ("linear",), ("uncorrelated",), 2, ("vanilla",), ("iou",)), Path(sys.argv[1]))
"""


@pytest.fixture
def started(tmp_path):
    """A run with one of two cells."""
    begin(SPEC, tmp_path / "run")
    write_cells(tmp_path / "run", SPEC, {"rows": ROWS})
    (tmp_path / "run" / "cells" / "linear-uncorrelated-001" / "cell.json").unlink()
    return tmp_path / "run"


@pytest.mark.slow
def test_a_start_that_was_killed_between_its_files_can_be_repeated(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "run"], check=False)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["about.json"]
    (tmp_path / "run" / ".agop-abc.part").touch()
    begin(SPEC, tmp_path / "run")
    assert RunSpec.load(tmp_path / "run") == SPEC


def test_a_run_without_about_json_gets_it_when_it_is_resumed(started):
    """A --fresh that was killed may have deleted it."""
    (started / "about.json").unlink()
    begin(SPEC, started)
    assert About.load(started).versions == versions()


@pytest.mark.parametrize("name", ["about.json", "letter.txt", "rows.jsonl"])
def test_files_of_others_are_kept_and_no_lock_is_written_beside_them(name, tmp_path):
    (tmp_path / name).write_text('{"mine": 1}')
    for fresh in (False, True):
        with pytest.raises((InputError, FileError), match="another"), run_folder(SPEC, tmp_path, fresh=fresh):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_with_another_programs_spec_json_stays_as_it_is(tmp_path, fresh):
    (tmp_path / "spec.json").write_text('{"openapi": "3.0"}')
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises((InputError, FileError), match="is not a run folder"), run_folder(SPEC, tmp_path, fresh=fresh):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt", "spec.json"]


def test_a_second_job_in_the_folder_raises_with_the_owner(started):
    with run_folder(SPEC, started):
        for fresh in (False, True):
            with pytest.raises(FileError, match=rf"run is in use by process {os.getpid()} on .*choose another folder"):
                run_folder(SPEC, started, fresh=fresh).__enter__()
        assert CellFiles(started / "cells" / "linear-uncorrelated-000")
    with run_folder(SPEC, started, fresh=True):
        assert not (started / "cells").exists()


def test_other_ranks_of_the_job_enter_and_ranks_of_another_job_wait(started, monkeypatch):
    monkeypatch.setattr(module, "_START_SECONDS", 0)
    monkeypatch.setenv("MASTER_PORT", "1")
    with ExitStack() as stack:
        for rank in (0, 1, 2):
            stack.enter_context(run_folder(SPEC, started, rank=rank))
        monkeypatch.setenv("MASTER_PORT", "2")
        with pytest.raises(InputError, match="rank 1 sees no"):
            run_folder(SPEC, started, rank=1).__enter__()


def test_other_versions_are_refused_unless_forced_and_both_are_recorded(started, monkeypatch):
    other = versions() | {"torch": "99.0"}
    monkeypatch.setattr(module, "versions", lambda: other)
    problem = rf"started with agop \S+, torch {re.escape(versions()['torch'])}, this is agop \S+, torch 99.0"
    with pytest.raises(InputError, match=rf"{problem}: .*--fresh.*--force"):
        begin(SPEC, started)
    with pytest.warns(AGOPWarning, match=problem):
        begin(SPEC, started, force=True)
    monkeypatch.setattr("agop.runs.cell_files.versions", lambda: other)
    seal(started / "cells" / "linear-uncorrelated-001")
    assert [("99.0" in text) for text in Run(started).versions] == [False, True]
    begin(SPEC, started)  # nothing is missing


def test_versions_that_computed_a_cell_may_compute_more(started, monkeypatch):
    other = versions() | {"agop": "99.0"}
    monkeypatch.setattr("agop.runs.cell_files.versions", lambda: other)
    seal(started / "cells" / "linear-uncorrelated-000")
    monkeypatch.setattr(module, "versions", lambda: other)
    begin(SPEC, started)
