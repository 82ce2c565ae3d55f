"""What the callbacks share: the hook, its options, the finished AGOP, and the states of all ranks."""

import os
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from agop.collect.hook import AGOPTrainingHook
from agop.errors import FileError, InputError, NoSamplesError, warn
from agop.prior.accumulator import Accumulator
from agop.prior.agop import AGOP
from agop.processes import rank_and_world_size

State = dict[str, Any]


def state_for_this_rank(states: list[State]) -> State:
    """State of this rank. If the number of ranks has changed, rank 0 gets the sum and the others start at zero."""
    rank, count = rank_and_world_size()
    if count == len(states):
        return states[rank]
    sums = Accumulator(states[0]["sums"]["per_class"], states[0]["sums"]["rank"])
    for state in states if rank == 0 else []:
        sums = sums.merge(Accumulator.from_state(state["sums"]))
    seen = sum(state["seen"] for state in states) if rank == 0 else 0
    return states[0] | {"sums": sums.state_dict(), "seen": seen, "convergence": None}


class TrainingCallback:
    """Base of a trainer's callback, with the options of AGOPTrainingHook. A subclass calls `_finish` at the end."""

    _not_trained: ClassVar[str]
    _no_batch: ClassVar[str]

    def __init__(self, out: str | os.PathLike[str] | None, **options: Any) -> None:
        if out is not None and Path(out).is_dir():
            raise InputError(f"out {out} is a folder: pass a file, for example {Path(out) / 'agop.safetensors'}")
        # Invalid options raise now, not at the start of the training. The layer needs the model.
        AGOPTrainingHook(nn.Identity(), **options | {"layer": None})
        self.out = None if out is None else Path(out)
        self._options = options
        self._hook: AGOPTrainingHook | None = None
        self._forget_prior()

    @property
    def prior(self) -> AGOP:
        """The AGOP of the last training, over all ranks. Raises NoSamplesError if no sample was counted."""
        if self._prior is None:
            raise NoSamplesError(self._no_prior)
        return self._prior

    def _forget_prior(self) -> None:
        self._prior: AGOP | None = None
        self._no_prior = self._not_trained

    def _finish(self, out: Path | None, writes: bool) -> None:
        """Compute `prior` over all ranks. The rank that `writes` saves it to `out`.

        Warns instead of raising: a full disk or a model that got no sample right must not lose a finished training.
        """
        if self._hook is None:
            return
        try:
            self._prior = self._hook.finalize()
            if out is not None and writes:
                self._prior.save(out)
        except NoSamplesError as error:
            self._no_prior = str(error) if self._hook.steps else self._no_batch
            if out is not None:
                warn(f"no AGOP file was written: {self._no_prior}")
        except FileError as error:
            warn(f"the AGOP file was not written, save callback.prior elsewhere: {error}")
