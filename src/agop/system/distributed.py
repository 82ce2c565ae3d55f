"""The ranks of a torchrun job: joining, meeting and leaving them. Without torchrun a process is the only one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import sleep
from typing import Any, TypeVar

from agop.errors import AGOPError, InputError, RankError
from agop.system.pulse import Pulse

T = TypeVar("T")
# For what all ranks do at once, after they have met. The wait for a slow rank has no end while its pulse goes.
_TIMEOUT = timedelta(minutes=10)


class Ranks:
    """The place of this process in its job, `rank` of `count`: here, the only one."""

    rank, count = 0, 1
    # What stays if the job ends early, for the error's message; a KeyboardInterrupt says it, too.
    kept = ""

    @property
    def first(self) -> bool:
        """True for the rank that prints, and writes what belongs to all."""
        return self.rank == 0

    @property
    def first_here(self) -> bool:
        """True for one rank of each machine."""
        return self.count == 1 or os.environ["LOCAL_RANK"] == "0"

    def share(self, items: Sequence[T]) -> list[T]:
        """The items of this rank: every `count`-th, or none if there are more ranks than items."""
        return list(items[self.rank :: self.count])

    def meet(self) -> None:
        """Wait until every rank is here."""

    def same(self, told: Mapping[str, Any]) -> None:
        """Raise unless all ranks tell the same: their machines may have other files, or other commands."""


class _Joined(Ranks):
    """One of several, which meet in torchrun's store."""

    def __init__(self, store: Any, rank: int, count: int, patience: float) -> None:
        self.rank, self.count = rank, count
        self._store = store
        self._meetings = 0
        self.pulse = Pulse(self._store, rank, count, patience)

    def meet(self) -> None:
        self._meetings += 1
        place = f"agop meeting {self._meetings}"
        try:
            here = self._store.add(place, 1)
            while here < self.count:
                sleep(0.02)
                here = self._store.add(place, 0)
        except RuntimeError as error:
            raise _unreachable(self.rank, self.count, error) from error

    def same(self, told: Mapping[str, Any]) -> None:
        ours = json.loads(json.dumps(told))
        place = f"agop told at meeting {self._meetings}"
        if self.first:
            self._store.set(place, json.dumps(ours))
        self.meet()
        theirs = json.loads(self._store.get(place))
        other = [
            f"{name} {ours[name]} here, {theirs.get(name)} there" for name in ours if ours[name] != theirs.get(name)
        ]
        if other:
            raise InputError(
                f"rank {self.rank} of {self.count} has other work than rank 0 ({'; '.join(other)}): start all "
                "machines with the same command, files and weights"
            )

    def why(self) -> str:
        """Why the job ends, told to the others, too."""
        try:
            why = self.pulse.why()
            self.pulse.tell(why)
        except RuntimeError as error:
            return str(_unreachable(self.rank, self.count, error))
        return why


_here: _Joined | None = None


@contextmanager
def ranks(gpus: bool = False, patience: float = 60) -> Iterator[Ranks]:
    """The place of this process in its torchrun job, which it joins and leaves.

    A rank that ends early ends the others with a RankError: at once if it raises or torchrun sees it end, else after
    `patience` seconds without a sign of it. With `gpus` ranks reduce there, if each has one.
    """
    import torch.distributed as dist

    global _here  # noqa: PLW0603  # a process is part of one job
    if not (dist.is_available() and dist.is_torchelastic_launched()) or os.environ["WORLD_SIZE"] == "1":
        alone = Ranks()
        try:
            yield alone
        except KeyboardInterrupt as stopped:
            stopped.args = (alone.kept,)
            raise
        return
    ended = _raise_when_told_to_end()
    _here = here = _joined(gpus, patience)
    try:
        yield here
        here.meet()
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # there is still something to say
        if isinstance(error, KeyboardInterrupt):
            error.args = (here.kept,)
        if ended or isinstance(error, RankError):
            raise RankError("; ".join(filter(None, (here.why(), here.kept)))) from None
        with suppress(RuntimeError):
            here.pulse.tell(f"rank {here.rank} of {here.count} ended early: {type(error).__name__}: {error}")
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _here = None
        with suppress(RuntimeError):
            here.pulse.stop()
        dist.destroy_process_group()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def collective() -> Iterator[None]:
    """Inside, all ranks of torch.distributed do the same at once; if one cannot be reached, a RankError."""
    import torch.distributed as dist

    try:
        if _here is not None:
            _here.meet()
        yield
    except RuntimeError as error:
        if isinstance(error, AGOPError):
            raise
        raise _unreachable(dist.get_rank(), dist.get_world_size(), error) from error


def torchrun_rank() -> tuple[int, int]:
    """(rank, world size) that torchrun set for this process; (0, 1) without torchrun."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def rank_and_world_size() -> tuple[int, int]:
    """The rank of this process in torch.distributed and how many there are; outside it, the first of one."""
    import torch.distributed as dist

    joined = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)


def cores_here() -> int:
    """The cores of this machine that are this rank's."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class _ToldToEnd(BaseException):
    """SIGTERM, wherever the process is: no `except Exception` of a model or a loader may stop it."""


def _raise_when_told_to_end() -> list[int]:
    """SIGTERM raises from now on, once; the list holds it afterwards."""
    received: list[int] = []

    def end(number: int, _: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        received.append(number)
        raise _ToldToEnd

    signal.signal(signal.SIGTERM, end)
    return received


def _joined(gpus: bool, patience: float) -> _Joined:
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    torch.set_num_threads(cores_here())  # torchrun would have one, whatever the machine
    backend = "gloo"
    if gpus and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "nccl"
    try:
        store, rank, count = next(rendezvous("env://", timeout=_TIMEOUT))
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
        return _Joined(store, rank, count, patience)
    except (RuntimeError, _ToldToEnd) as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        told = str(error) or "the job was told to end"
        raise RankError(f"rank {os.environ['RANK']} could not meet the other ranks: {told}") from None


def _unreachable(rank: int, count: int, error: RuntimeError) -> RankError:
    return RankError(f"rank {rank} of {count} cannot reach the others: {str(error).partition(chr(10))[0]}")
