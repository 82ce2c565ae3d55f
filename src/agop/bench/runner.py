"""Many cells → a run folder, in parallel processes; what is done is never done again."""

from __future__ import annotations

import math
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agop.errors import FileError, InputError, ModelError
from agop.runs.about import command_line, save_about
from agop.runs.rows import collect
from agop.runs.spec import Cell, RunSpec
from agop.system.processes import exit_with_parent

if TYPE_CHECKING:  # torch stays out: a worker imports this first, and should soon listen for its parent's end
    from agop.system.distributed import Ranks

# A kill loses the trainings at work; beyond five, training together gains little.
_MOST_TOGETHER = 5


def run(spec: RunSpec, folder: Path, jobs: int, here: Ranks) -> None:
    """Compute the cells of a begun run that are not there yet, then its rows. Ends with the folder whole, or raises.

    Of several ranks each computes its share, in so many processes of its own; the first one collects the rows.
    """
    missing = [cell for cell in spec.cells() if not (folder / "cells" / cell.name / "rows.jsonl").exists()]
    here.meet()  # all have seen the same cells missing, before the first new one is there
    groups = here.share(_groups(missing, jobs * here.count))
    mine = [cell for group in groups for cell in group]
    done = len(spec.cells()) - len(missing) if here.count == 1 else 0
    if mine:
        with _display(here.first) as bar:
            task = bar.add_task("", total=done + len(mine), completed=done, what="starting")
            for fraction, name in _computed(spec, groups, folder, jobs):
                bar.update(task, completed=done + fraction, what=name)
    here.meet()
    if here.first:
        collect(spec, folder)


def begin(spec: RunSpec, folder: Path, *, fresh: bool = False, notes: Sequence[str] = ()) -> None:
    """A folder for this specification: a new one, or one that was begun with the same. Notes go into the report."""
    if fresh and (folder / "spec.json").exists():
        shutil.rmtree(folder)
    if (folder / "spec.json").exists():
        different = RunSpec.load(folder).differences(spec)
        if different:
            told = "; ".join(f"{name}: {there} there, {here} here" for name, (there, here) in different.items())
            raise InputError(f"{folder} holds a run of another specification ({told}): name another --out, or --fresh")
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is there and is not a run folder: name another --out")
    save_about(folder, **_about(spec), notes=list(notes))
    spec.save(folder)  # last: a folder with a specification is one to go on with


def _about(spec: RunSpec) -> dict[str, Any]:
    """What a run's scenarios and metrics mean."""
    from agop import methods, metrics, scenarios

    return {
        "command": command_line(),
        "network": scenarios.get(spec.scenarios[0]).with_options(spec.options).description,
        "classes": {name: scenarios.get(name).classes for name in spec.scenarios},
        "methods": methods.descriptions(spec.methods),
        "metrics": {name: metrics.get(name).described(spec.steps) for name in spec.metrics},
    }


def _computed(spec: RunSpec, share: list[list[Cell]], folder: Path, jobs: int) -> Iterator[tuple[float, str]]:
    """How many cells are done so far, in fractions, and which ones are at work."""
    context = multiprocessing.get_context("spawn")
    heard = context.Queue()
    groups = {_name(group): group for group in share}
    fractions = dict.fromkeys(groups, 0.0)
    pool = ProcessPoolExecutor(max(1, min(jobs // _threads(spec), len(groups))), context, _begin_work, (heard,))
    try:
        waiting = {pool.submit(_work, spec, group, folder): name for name, group in groups.items()}
        while waiting:
            finished, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in finished:
                _raise_if_failed(future, waiting[future])
                fractions[waiting.pop(future)] = 1.0
            at_work = _hear(heard, fractions)
            yield sum(fractions[name] * len(group) for name, group in groups.items()), at_work
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _threads(spec: RunSpec) -> int:
    from agop import scenarios

    return scenarios.get(spec.scenarios[0]).with_options(spec.options).threads


def _groups(cells: list[Cell], jobs: int) -> list[list[Cell]]:
    """The cells in groups of one scenario and background, small enough that every process has one."""
    size = min(_MOST_TOGETHER, math.ceil(len(cells) / jobs))
    places = groupby(cells, key=lambda cell: (cell.scenario, cell.background))
    return [found[i : i + size] for found in (list(group) for _, group in places) for i in range(0, len(found), size)]


def _name(group: list[Cell]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name}…{group[-1].seed:03d}"


_heard: Any = None


def _begin_work(heard: Any) -> None:
    """In a worker: remember where to tell, and end with the parent, also if that is killed."""
    global _heard  # noqa: PLW0603  # a worker process has one parent
    _heard = heard
    exit_with_parent()


def _work(spec: RunSpec, group: list[Cell], folder: Path) -> None:
    from agop.bench.cell import run_cells

    run_cells(spec, group, folder, lambda fraction: _heard.put((_name(group), fraction)))


def _hear(heard: Any, fractions: dict[str, float]) -> str:
    running = [name for name, fraction in fractions.items() if 0 < fraction < 1]
    try:
        while True:
            name, fraction = heard.get_nowait()
            if fractions[name] < 1:
                fractions[name] = fraction
    except Empty:
        return ", ".join(running[:2])


def _raise_if_failed(future: Future[None], name: str) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise ModelError(f"a worker process died while {name} was waiting or at work: run again to go on") from error
    except FileError as error:
        if "could not write" not in str(error):
            raise
        raise FileError(f"{error}; the cells that are done are safe: make room and run again to go on") from error


def _display(show: bool) -> Progress:
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed:.1f}/{task.total} cells"),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    rest = (TimeRemainingColumn(), TextColumn("{task.fields[what]}"))
    return Progress(
        *columns, *rest, console=console, disable=not show or not (console.is_terminal or console.is_jupyter)
    )
