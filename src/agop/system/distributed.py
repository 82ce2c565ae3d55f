"""Rank, world size and process group of a torchrun job. Without torchrun there is one rank.

torch is imported where it's used: `torchrun_rank` also serves processes that don't load it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from agop.errors import InputError, RankError
from agop.system.processes import available_cores

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
    import torch.distributed as dist

    barrier()  # names a rank that failed before it got here
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, dict(settings))
    first = gathered[0]
    for rank, other in enumerate(gathered):
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
