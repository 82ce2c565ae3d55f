"""The states that the hooks of all ranks have, as one checkpoint holds them."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from typing import Any

import torch
import torch.distributed as dist

from agop.statistic.accumulator import Accumulator
from agop.statistic.hook import AGOPTrainingHook
from agop.system.distributed import rank_and_world_size

State = dict[str, Any]


def of_all_ranks(hook: AGOPTrainingHook) -> list[State]:
    """The state of each rank's hook. A collective.

    Not their sum: a float64 sum in another order would differ in its last bit.
    """
    _, count = rank_and_world_size()
    states: list[Any] = [hook.state_dict()] * count
    if count > 1:
        dist.all_gather_object(states, states[0])
    return states


def share_of_rank(states: list[State]) -> State:
    """Each rank's own state; with another number of ranks, that of all for rank 0 and none for the others."""
    rank, count = rank_and_world_size()
    if count == len(states):
        return states[rank]
    sums = Accumulator(states[0]["sums"]["per_class"])
    for state in states if rank == 0 else []:
        part = Accumulator(sums.per_class)
        part.load_state_dict(state["sums"])
        sums = sums.merge(part)
    seen = sum(state["seen"] for state in states) if rank == 0 else 0
    return states[0] | {"sums": sums.state_dict(), "seen": seen}


def packed(state: State) -> str:
    """A state as text, for a JSON file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return b64encode(buffer.getvalue()).decode()


def unpacked(text: str) -> State:
    """The state of such a text; no code in it is run."""
    state: State = torch.load(io.BytesIO(b64decode(text)), weights_only=True)
    return state
