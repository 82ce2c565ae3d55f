"""Map a function over items in worker processes; count the cores for them."""

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


def available_cores() -> int:
    """Number of cores this process may use: those of its CPU affinity, where the system has one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Results of `work` in the order of the items. With more than one job, `work` and the items are pickled."""
    return map(work, items) if jobs <= 1 or len(items) < 2 else _map_in_pool(work, items, jobs)


def _map_in_pool(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), context, _start_worker)
    try:
        yield from pool.map(work, items)
    except BrokenProcessPool as error:
        raise ModelError("a worker process died: run again to resume") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """In a worker: leave Ctrl-C to the parent, and exit with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


def exit_with_parent() -> None:
    """In a worker: exit when the parent does, even if it's killed."""
    threading.Thread(target=_wait_and_exit, daemon=True).start()


def _wait_and_exit() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
