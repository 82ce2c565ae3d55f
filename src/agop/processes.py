"""Processes: workers, progress bars, and the ranks of torch.distributed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TypeVar

from agop.errors import InputError, ModelError, RankError

if TYPE_CHECKING:
    from rich.progress import Progress


def available_cores() -> int:
    """Number of cores this process may use: those of its CPU affinity, where the system has one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


T = TypeVar("T")
# Seconds between two lines of the progress without a terminal.
_LINE_EVERY = 15.0
# Seconds of a stage that says something at its end.
_WORTH_A_LINE = 5.0


def track(
    items: Iterable[T], what: str | Callable[[T], str], *, total: int | None = None, show: bool = True
) -> Iterator[T]:
    """Yield the items and show a progress bar: what is done, or a function of the item. `total`: their number."""
    if not show or multiprocessing.parent_process() is not None:  # a worker's bar would overwrite its parent's
        yield from items
        return
    total = len(items) if isinstance(items, Sized) else total
    with progress_bar() as bar:
        task = bar.add_task(what if isinstance(what, str) else "", total=total)
        for item in items:
            if not isinstance(what, str):
                bar.update(task, description=what(item), refresh=True)
            yield item
            bar.advance(task)


def progress_bar() -> Progress:
    """A progress bar on stderr. Elsewhere than in a terminal or notebook: a line from time to time."""
    # Importing rich draws from Python's random generator, which must not change a training.
    state = random.getstate()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    random.setstate(state)
    console = Console(stderr=True)

    class Timed(Progress):
        """A bar whose time left counts from the start, not from the first item that ends."""

        def add_task(self, *args: Any, **options: Any) -> Any:
            task = super().add_task(*args, **options)
            self.advance(task, 0)
            return task

    class Lines(Timed):
        """Lines with what is done and the time left: one in 15 seconds, and one at the end if there was none."""

        def __enter__(self) -> Lines:
            self.began, self.spoke, self.ended = time.monotonic(), False, threading.Event()
            threading.Thread(target=self.talk, daemon=True).start()
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            self.ended.set()
            if not self.spoke and time.monotonic() - self.began > _WORTH_A_LINE:
                self.say()
            super().__exit__(*error)

        def talk(self) -> None:
            while not self.ended.wait(_LINE_EVERY):
                self.say()

        def say(self) -> None:
            self.spoke = True
            for task in self.tasks:
                left = "" if not task.time_remaining else f", {timedelta(seconds=task.time_remaining)} left"
                of = "" if task.total is None else f" of {task.total:g}"
                print(f"{task.description}: {task.completed:.0f}{of}{left}", file=sys.stderr, flush=True)  # noqa: T201

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not (console.is_terminal or console.is_jupyter)
    seconds = 3600.0  # an item may take minutes: rich's 30 seconds would give no time left
    kind = Lines if hidden else Timed
    return kind(*columns, console=console, transient=True, disable=hidden, speed_estimate_period=seconds)


Fraction = Callable[[float], None]
Work = Callable[[T, Fraction], None]


def run_tasks(work: Work[T], tasks: Mapping[str, T], workers: int) -> Generator[tuple[str, float], None, None]:
    """Run work(task, progress) for each task, in at most `workers` processes; yield name and fraction as they come.

    Raises the first error of a worker. No worker is left when the iterator ends or is closed.
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(tasks.items())
    running: dict[Connection, tuple[str, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                name, task = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(target=_serve, args=(work, task, sender))
                process.start()
                sender.close()  # the worker's copy is the only one: when it ends, the receiver sees the end of the file
                running[receiver] = name, process
            ready = wait(list(running))
            for receiver in [receiver for receiver in running if receiver in ready]:
                name, process = running[receiver]
                fraction = _receive(receiver, process, name)
                if fraction is None:
                    del running[receiver]
                yield name, 1.0 if fraction is None else fraction
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


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


def _work_off(work: Callable[[T], object], items: Sequence[T], progress: Fraction) -> None:
    """In a worker: one report per item; the end of the process is that of the last one."""
    for number, item in enumerate(items):
        if number:
            progress(number / len(items))
        work(item)


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


def _serve(work: Work[Any], task: Any, sender: Connection) -> None:
    """In a worker: do the task, report fractions and errors to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent ends its workers
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        work(task, lambda fraction: sender.send(float(fraction)))
    except Exception as error:
        sender.send((_picklable(error), traceback.format_exc()))


def _exit_with_parent() -> None:
    """In a thread of a worker: end the process when the parent ends, even if it's killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _picklable(error: Exception) -> Exception:
    """The error itself, or a RuntimeError with its text if it can't be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a user's own exception raises here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# How long a rank waits for a slower one. torchrun ends the job much sooner if a rank dies; this is for one that hangs.
TIMEOUT = timedelta(hours=2)


def torchrun_rank() -> tuple[int, int]:
    """(rank, world size) that torchrun set for this process; (0, 1) without torchrun."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def rank_and_world_size() -> tuple[int, int]:
    """(rank, world size) of this process in torch.distributed; (0, 1) without a process group."""
    import torch.distributed as dist

    joined = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)


def gathered(value: Any) -> list[Any]:
    """The value of each rank of torch.distributed, in their order. A collective: every rank must call it."""
    import torch.distributed as dist

    _, world_size = rank_and_world_size()
    if world_size == 1:
        return [value]
    values: list[Any] = [None] * world_size
    dist.all_gather_object(values, value)
    return values


@contextmanager
def process_group(gpus: bool = False) -> Iterator[None]:
    """Join torchrun's process group, and leave it at the end. With `gpus`, each local rank selects its own GPU.

    The local ranks share the machine's cores. Does nothing without torchrun.
    """
    rank, world_size = torchrun_rank()
    if world_size == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    if gpus and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        # gloo also with GPUs: only gloo has monitored_barrier, and the ranks reduce their sums just once.
        dist.init_process_group("gloo", timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:  # ValueError: RANK is set, but not by torchrun
        reason = str(error).partition("\n")[0]
        raise RankError(f"rank {rank} of {world_size} couldn't join the others: {reason}") from error
    torch.set_num_threads(max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    try:
        yield
    finally:
        dist.destroy_process_group()


def barrier(timeout: timedelta = TIMEOUT) -> None:
    """Wait for all ranks. Raises a RankError that names the missing one (on rank 0) or points to rank 0 (elsewhere)."""
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        return
    import torch.distributed as dist

    try:
        dist.monitored_barrier(timeout=timeout)
    except RuntimeError as error:
        missing = re.search(r"Rank (\d+) failed to pass", str(error))
        if missing:
            problem = f"rank {missing[1]} of {world_size} ended early, or took more than {timeout}: read its error"
        else:
            problem = f"rank {rank} of {world_size} lost rank 0: read the error of rank 0"
        raise RankError(f"{problem}, then start the job again") from error


def check_same_on_all_ranks(settings: Mapping[str, Any]) -> None:
    """Raise an InputError that names the differences unless all ranks have the same settings."""
    _, world_size = rank_and_world_size()
    if world_size == 1:
        return
    barrier()  # names a rank that failed before it got here
    first, *_ = ranks = gathered(dict(settings))
    for rank, other in enumerate(ranks):
        differences = [
            f"{name} is {first.get(name)} on rank 0, {other.get(name)} on rank {rank}"
            for name in {**first, **other}
            if first.get(name) != other.get(name)
        ]
        if differences:
            raise InputError(
                f"the ranks have different work ({'; '.join(differences)}): start all of them with the same command, "
                "files and weights"
            )
