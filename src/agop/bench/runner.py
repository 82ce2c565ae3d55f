"""Many cells → a run folder, in parallel processes. Finished cells are never computed again.

Under torchrun each rank takes its share of the cells. Ranks never talk to one another: they only see the run folder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agop.errors import FileError
from agop.runs.rows import collect, missing
from agop.runs.spec import Cell, RunSpec
from agop.system.workers import run_tasks

if TYPE_CHECKING:
    from agop.scenarios import Scenario

# Beyond that many networks, training together gains nothing more per network.
_MOST_TOGETHER = 16
_POLL_SECONDS = 0.2


def run(spec: RunSpec, folder: Path, jobs: int, rank: int = 0, world_size: int = 1) -> None:
    """Compute this rank's missing cells in `jobs` processes; rank 0 then waits for all cells and collects the rows."""
    share = cells_of_rank(spec, rank, world_size)
    unfinished = missing(share, folder)
    if unfinished:
        _compute(spec, unfinished, folder, jobs, finished=len(share) - len(unfinished), show=rank == 0)
    if rank == 0:
        _wait_for_cells(spec.cells(), folder)
        collect(spec, folder)


def cells_of_rank(spec: RunSpec, rank: int, world_size: int) -> list[Cell]:
    """One rank's share of all cells, finished or not: every rank comes to the same shares, whenever it starts."""
    return [cell for group in _groups(spec, spec.cells(), world_size)[rank::world_size] for cell in group]


def _groups(spec: RunSpec, cells: Sequence[Cell], jobs: int) -> list[list[Cell]]:
    """The cells in groups that one process computes: networks that train together, at most one share per process."""
    from agop.bench.train import stack_key

    keys = {name: stack_key(_scenario(spec, name)) for name in spec.scenarios}
    stacks: dict[object, list[Cell]] = {}
    for cell in cells:
        stacks.setdefault(keys[cell.scenario] or cell, []).append(cell)
    size = min(_MOST_TOGETHER, math.ceil(len(cells) / jobs))
    return [stack[i : i + size] for stack in stacks.values() for i in range(0, len(stack), size)]


def _scenario(spec: RunSpec, name: str) -> Scenario:
    from agop import scenarios

    return scenarios.get(name).with_options(spec.options)


def _compute(spec: RunSpec, cells: Sequence[Cell], folder: Path, jobs: int, *, finished: int, show: bool) -> None:
    """Compute cells in parallel processes, with a progress bar that also counts the finished ones."""
    groups = {_name(group): group for group in _groups(spec, cells, jobs)}
    fractions = dict.fromkeys(groups, 0.0)
    workers = max(1, jobs // _scenario(spec, spec.scenarios[0]).threads)
    with _display(show) as bar, closing(run_tasks(partial(_work, spec, folder), groups, workers)) as reports:
        task = bar.add_task("", total=finished + len(cells), completed=finished, what="starting")
        try:
            for name, fraction in reports:
                fractions[name] = fraction
                running = [name for name, fraction in fractions.items() if 0 < fraction < 1]
                completed = sum(fractions[name] * len(group) for name, group in groups.items())
                bar.update(task, completed=finished + completed, what=", ".join(running[:2]))
        except FileError as error:
            if "could not write" not in str(error):
                raise
            raise FileError(f"{error}; finished cells are safe: free disk space and run again to resume") from error


def _work(spec: RunSpec, folder: Path, group: list[Cell], progress: Callable[[float], None]) -> None:
    """In a worker: compute one group of cells."""
    from agop.bench.cell import run_cells

    run_cells(spec, group, folder, progress)


def _name(group: Sequence[Cell]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name} … {group[-1].name}"


def _wait_for_cells(cells: Sequence[Cell], folder: Path) -> None:
    """Wait for the cells of the other ranks; torchrun ends this process if one of them fails."""
    if not missing(cells, folder):
        return
    with _display(True) as bar:
        task = bar.add_task("", total=len(cells), what="waiting for the other ranks")
        while unfinished := missing(cells, folder):
            bar.update(task, completed=len(cells) - len(unfinished))
            time.sleep(_POLL_SECONDS)


def _display(show: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        BarColumn(),
        TextColumn("{task.completed:.1f}/{task.total} cells"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
        console=console,
        disable=not show or not (console.is_terminal or console.is_jupyter),
    )
