"""Progress bar with the remaining time, on a terminal's standard error or in a notebook."""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


def track(items: Iterable[T], what: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield the items and show a progress bar. `total` is for items without a length."""
    if not show or multiprocessing.parent_process() is not None:  # a worker's bar would overwrite its parent's
        yield from items
        return
    total = len(items) if isinstance(items, Sized) else total
    with _bar() as bar:
        yield from bar.track(items, total=total, description=what)


def say(text: str, *, show: bool = True) -> None:
    """Print a line to standard error, unless this is a worker."""
    if show and multiprocessing.parent_process() is None:
        sys.stderr.write(f"{text}\n")


def _bar() -> Progress:
    # Importing rich draws from Python's random generator, which must not change a training.
    state = random.getstate()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    random.setstate(state)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not (console.is_terminal or console.is_jupyter)
    return Progress(*columns, console=console, transient=True, disable=hidden)
