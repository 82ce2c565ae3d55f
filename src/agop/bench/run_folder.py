"""The start of a run: a new run folder, or one to resume."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agop import methods, metrics, scenarios
from agop.errors import InputError
from agop.runs.about import command_line, save_about
from agop.runs.spec import RunSpec

_POLL_SECONDS = 0.2
_SPEC_SECONDS = 300


def begin(spec: RunSpec, folder: Path, *, fresh: bool = False, notes: Sequence[str] = (), rank: int = 0) -> None:
    """Create the run folder, or check that the existing one has the same specification. Notes go into the report.

    Only rank 0 creates or deletes the folder; the others wait for it.
    """
    if rank > 0:
        _wait_for_spec(folder, rank)
        _check_same(spec, folder)
        return
    if fresh and (folder / "spec.json").exists():
        shutil.rmtree(folder)
    if (folder / "spec.json").exists():
        _check_same(spec, folder)
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} already exists and is not a run folder: choose another --out")
    save_about(folder, **_about(spec), notes=list(notes))
    spec.save(folder)  # last: a folder with a specification can be resumed


def _wait_for_spec(folder: Path, rank: int) -> None:
    deadline = time.monotonic() + _SPEC_SECONDS
    while not (folder / "spec.json").exists():
        if time.monotonic() > deadline:
            raise InputError(
                f"rank {rank} sees no {folder}/spec.json after {_SPEC_SECONDS} seconds: choose an --out on a disk "
                "that all machines share"
            )
        time.sleep(_POLL_SECONDS)


def _check_same(spec: RunSpec, folder: Path) -> None:
    differences = RunSpec.load(folder).differences(spec)
    if differences:
        text = "; ".join(f"{name}: {there} there, {here} here" for name, (there, here) in differences.items())
        raise InputError(f"{folder} is a run with another specification ({text}): choose another --out, or --fresh")


def _about(spec: RunSpec) -> dict[str, Any]:
    """What the scenarios, methods and metrics of a run mean."""
    return {
        "command": command_line(),
        "network": scenarios.get(spec.scenarios[0]).with_options(spec.options).description,
        "classes": {name: scenarios.get(name).classes for name in spec.scenarios},
        "methods": methods.descriptions(spec.methods),
        "metrics": {name: metrics.get(name).described(spec.steps) for name in spec.metrics},
    }
