"""A progress bar with the time left, on a terminal's standard error or in a notebook."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


def track(items: Iterable[T], what: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """The items one by one, with a bar while they go by; `total` is for items that do not know how many they are."""
    if not show or multiprocessing.parent_process() is not None:  # a worker's bar would draw over its parent's
        yield from items
        return
    total = len(items) if isinstance(items, Sized) else total
    with _bar() as bar:
        yield from bar.track(items, total=total, description=what)


def _bar() -> Progress:
    # rich draws from Python's generator when it is imported, which a training must not notice.
    state = random.getstate()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    random.setstate(state)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not (console.is_terminal or console.is_jupyter)
    return Progress(*columns, console=console, transient=True, disable=hidden)
