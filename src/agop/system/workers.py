"""Worker processes: one per task. They end with the parent, also when the parent is killed.

They use pipes only. The semaphores of multiprocessing's pools and queues outlive a killed process, with a warning.

No torch here: a worker imports this module first and should soon watch its parent.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from agop.errors import ModelError
from agop.system.processes import exit_with_parent

T = TypeVar("T")
Progress = Callable[[float], None]
Work = Callable[[T, Progress], None]


def run_tasks(work: Work[T], tasks: Mapping[str, T], workers: int) -> Generator[tuple[str, float], None, None]:
    """Run work(task, progress) for each task, in at most `workers` processes; yield name and fraction as they come.

    Raises the first error of a worker. No worker is left when the iterator ends or is closed.
    """
    waiting = list(tasks.items())
    running: dict[Connection, tuple[str, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                name, task = waiting.pop(0)
                connection, process = _start(work, task)
                running[connection] = name, process
            ready = wait(list(running))
            for connection in [connection for connection in running if connection in ready]:
                name, process = running[connection]
                fraction = _receive(connection, process, name)
                if fraction is None:
                    del running[connection]
                yield name, 1.0 if fraction is None else fraction
    finally:
        _end([process for _, process in running.values()])


def run_each(work: Callable[[T], object], items: Sequence[T], jobs: int) -> Generator[None, None, None]:
    """Call work(item) for each item, in `jobs` processes if there are several; yield after each of them.

    Close the generator to end the processes early.
    """
    if jobs <= 1 or len(items) < 2:
        for item in items:
            work(item)
            yield
        return
    shares = {f"share {job}": items[job::jobs] for job in range(min(jobs, len(items)))}
    with closing(run_tasks(partial(_work_off, work), shares, jobs)) as reports:
        for _ in reports:
            yield


def _work_off(work: Callable[[T], object], items: Sequence[T], progress: Progress) -> None:
    """In a worker: one report per item; the end of the process is that of the last one."""
    for number, item in enumerate(items):
        if number:
            progress(number / len(items))
        work(item)


def _start(work: Work[T], task: T) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(work, task, sender))
    process.start()
    sender.close()  # the worker's copy is the only one: when it ends, the receiver sees the end of the file
    return receiver, process


def _receive(connection: Connection, process: BaseProcess, name: str) -> float | None:
    """The fraction that a worker reports, or None when it has finished. Raises its error."""
    try:
        message = connection.recv()
    except EOFError:
        process.join()
        if process.exitcode != 0:
            raise ModelError(f"the worker process of {name} died: run again to resume") from None
        return None
    if isinstance(message, float):
        return message
    error, text = message
    raise error from RuntimeError(text)


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _serve(work: Work[Any], task: Any, sender: Connection) -> None:
    """In a worker: do the task, report fractions and errors to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent ends its workers
    exit_with_parent()
    try:
        work(task, lambda fraction: sender.send(float(fraction)))
    except Exception as error:
        sender.send((_picklable(error), traceback.format_exc()))


def _picklable(error: Exception) -> Exception:
    """The error itself, or a RuntimeError with its text if it can't be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a user's own exception raises here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
