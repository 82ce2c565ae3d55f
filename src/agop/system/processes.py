"""Cores for worker processes, and their end with the parent."""

from __future__ import annotations

import multiprocessing
import os
import threading


def available_cores() -> int:
    """Number of cores this process may use: those of its CPU affinity, where the system has one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exit_with_parent() -> None:
    """In a worker: exit when the parent does, even if it's killed."""
    threading.Thread(target=_wait_and_exit, daemon=True).start()


def _wait_and_exit() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
