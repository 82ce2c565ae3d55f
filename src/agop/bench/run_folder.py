"""The start of a run: a new run folder, or one to resume. One job at a time works in a run folder."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agop import methods, metrics, scenarios
from agop.errors import InputError, warn
from agop.runs.about import About, command_line, save_about, versions
from agop.runs.cell_files import CellFiles
from agop.runs.links import refuse_links
from agop.runs.removing import LOCK, check_removable, remove_run
from agop.runs.rows import missing
from agop.runs.spec import RunSpec
from agop.system.locks import owned_lock

_POLL_SECONDS = 0.2
_START_SECONDS = 300
# What a killed start leaves behind: no specification, no cells.
_LEFTOVER = re.compile(r"about\.json|\.lock|\.agop-\w+\.part")
# Versions that change results.
_COMPARED = ("agop", "torch")


@contextmanager
def run_folder(
    spec: RunSpec, folder: Path, *, fresh: bool = False, force: bool = False, notes: Sequence[str] = (), rank: int = 0
) -> Iterator[None]:
    """Create the run folder or check that it can be resumed, and keep other jobs out of it. Notes go into the report.

    Only rank 0 creates, locks or deletes the folder; the others wait for it. `force` resumes with other versions.
    """
    if rank > 0:
        _wait_for_rank_0(folder, rank)
        _check_same(spec, folder)
        yield
        return
    _check_place(folder, fresh)  # before a lock is written into a folder of the user's
    owner = f"process {os.getpid()} on {socket.gethostname()} ({command_line()})\n{_job()}"
    with owned_lock(folder / LOCK, owner):
        begin(spec, folder, fresh=fresh, force=force, notes=notes)
        yield


def begin(spec: RunSpec, folder: Path, *, fresh: bool = False, force: bool = False, notes: Sequence[str] = ()) -> None:
    """Create the run folder, or check that the existing one has the same specification and versions."""
    _check_place(folder, fresh)
    if fresh and (folder / "spec.json").exists():
        remove_run(folder)
    resumed = (folder / "spec.json").exists()
    if resumed:
        _check_same(spec, folder)
        _check_versions(spec, folder, force)
    if not resumed or not (folder / "about.json").exists():
        save_about(folder, **_about(spec), notes=list(notes))
    if not resumed:
        spec.save(folder)  # last: a folder with a specification can be resumed


def _check_place(folder: Path, fresh: bool) -> None:
    """Raise unless the folder is a run, missing, empty, or what a killed start left behind."""
    if (folder / "spec.json").exists():
        (check_removable if fresh else RunSpec.load)(folder)
    elif folder.exists():
        refuse_links(folder)
        if not all(_LEFTOVER.fullmatch(path.name) for path in folder.iterdir()):
            raise InputError(f"{folder} already exists and is not a run folder: choose another --out")
        if (folder / "about.json").exists():
            About.load(folder)  # raises if it's another program's


def _wait_for_rank_0(folder: Path, rank: int) -> None:
    """Wait until rank 0 of this job has the lock: a specification alone may be of a job that is still running."""
    deadline, lock = time.monotonic() + _START_SECONDS, folder / LOCK
    while not (lock.exists() and lock.read_text(errors="replace").endswith(_job()) and (folder / "spec.json").exists()):
        if time.monotonic() > deadline:
            raise InputError(
                f"rank {rank} sees no {folder}/spec.json of rank 0 after {_START_SECONDS} seconds: choose an --out on "
                "a disk that all machines share"
            )
        time.sleep(_POLL_SECONDS)


def _job() -> str:
    """What the ranks of a torchrun job have in common, and no two jobs at the same time."""
    return "job " + " ".join(os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"))


def _check_same(spec: RunSpec, folder: Path) -> None:
    differences = RunSpec.load(folder).differences(spec)
    if differences:
        text = "; ".join(f"{name}: {there} there, {here} here" for name, (there, here) in differences.items())
        raise InputError(f"{folder} is a run with another specification ({text}): choose another --out, or --fresh")


def _check_versions(spec: RunSpec, folder: Path, force: bool) -> None:
    """Raise, or warn with `force`, if cells would be computed with other versions than the finished ones."""
    unfinished = set(missing(spec.cells(), folder))
    finished = [CellFiles(folder / "cells" / cell.name) for cell in spec.cells() if cell not in unfinished]
    recorded = [About.load(folder).versions] if (folder / "about.json").exists() else []
    before = [_text(values) for values in (*recorded, *(cell.versions for cell in finished))]
    if not unfinished or not before or _text(versions()) in before:
        return
    problem = f"{folder} was started with {before[0]}, this is {_text(versions())}"
    if not force:
        raise InputError(f"{problem}: install those, start again with --fresh, or mix versions with --force")
    warn(f"{problem}: its cells are of different versions")


def _text(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {values.get(name)}" for name in _COMPARED)


def _about(spec: RunSpec) -> dict[str, Any]:
    """What the scenarios, methods and metrics of a run mean."""
    return {
        "command": command_line(),
        "network": scenarios.get(spec.scenarios[0]).with_options(spec.options).description,
        "classes": {name: scenarios.get(name).classes for name in spec.scenarios},
        "methods": methods.descriptions(spec.methods),
        "metrics": {name: metrics.get(name).described(spec.steps) for name in spec.metrics},
    }
