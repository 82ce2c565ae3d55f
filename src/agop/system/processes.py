"""One function over many items, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from agop.errors import ModelError

T = TypeVar("T")
R = TypeVar("R")


def map_in_processes(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """The results in order, as they are ready. With jobs above 1, `work` and the items are pickled."""
    return map(work, items) if jobs <= 1 or len(items) < 2 else _pooled(work, items, jobs)


def _pooled(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), context, _begin_work)
    try:
        yield from pool.map(work, items)
    except BrokenProcessPool as error:
        raise ModelError("a worker process died: run again to go on with what is missing") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_work() -> None:
    """In a worker: leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


def exit_with_parent() -> None:
    """In a worker: end when the parent does, also if that is killed."""
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
