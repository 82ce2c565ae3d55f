"""States of all ranks' hooks, for one checkpoint."""

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


def all_rank_states(hook: AGOPTrainingHook) -> list[State]:
    """State of each rank's hook. A collective call.

    Not their sum: a float64 sum in another order differs in its last bit.
    """
    _, count = rank_and_world_size()
    states: list[Any] = [hook.state_dict()] * count
    if count > 1:
        dist.all_gather_object(states, states[0])
    return states


def state_for_this_rank(states: list[State]) -> State:
    """State of this rank. If the number of ranks has changed, rank 0 gets the sum and the others start at zero."""
    rank, count = rank_and_world_size()
    if count == len(states):
        return states[rank]
    sums = Accumulator(states[0]["sums"]["per_class"], states[0]["sums"].get("rank", 0))
    for state in states if rank == 0 else []:
        sums = sums.merge(Accumulator.from_state(state["sums"]))
    seen = sum(state["seen"] for state in states) if rank == 0 else 0
    return states[0] | {"sums": sums.state_dict(), "seen": seen, "convergence": None}


def to_text(state: State) -> str:
    """Encode a state as text for a JSON file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return b64encode(buffer.getvalue()).decode()


def from_text(text: str) -> State:
    """Decode `to_text`, without running code from it."""
    state: State = torch.load(io.BytesIO(b64decode(text)), weights_only=True)
    return state
