"""AGOPTrainingHook: the accumulator inside a training loop, with snapshots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from agop.errors import FileError, InputError, warn
from agop.model.fingerprint import parameters_digest
from agop.model.probe import Gradients, check_model
from agop.statistic.accumulator import Accumulator
from agop.statistic.agop import AGOP
from agop.statistic.collector import Collector
from agop.statistic.provenance import TRAINING
from agop.system.distributed import rank_and_world_size


class AGOPTrainingHook:
    """Collects diag(M) while a model trains, and leaves the training exactly as it was.

    Call `step` once a batch, before or after optimizer.step(), and `finalize` at the end. With `every`=k
    only each k-th call makes a pass. With `snapshot_dir` the statistic so far is written there every
    `snapshot_every` calls, as step-00000100.safetensors and so on (under torch.distributed each rank
    its own); `finalize` joins all ranks. With nan="skip" samples whose gradient is not finite are
    left out and counted.
    """

    def __init__(
        self,
        model: nn.Module,
        only_correct: bool = True,
        every: int = 1,
        snapshot_every: int = 100,
        snapshot_dir: str | os.PathLike[str] | None = None,
        per_class: bool = False,
        *,
        nan: str = "raise",
    ) -> None:
        for name, value in (("every", every), ("snapshot_every", snapshot_every)):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is {value}: give a whole number, 1 or more")
        check_model(model)
        if snapshot_dir is not None and Path(snapshot_dir).is_file():
            raise InputError(f"snapshot_dir {snapshot_dir} is a file: give a folder")
        self.model = model
        self.every = every
        self.snapshot_every = snapshot_every
        self.snapshot_dir = None if snapshot_dir is None else Path(snapshot_dir)
        self.steps = 0
        self._collector = Collector(only_correct, per_class, nan)

    @property
    def count(self) -> int:
        """How many samples this process has counted so far."""
        return self._collector.sums.count

    @property
    def diagonal(self) -> Tensor:
        """diag(M) (C,H,W) of what this process has counted so far."""
        return self._collector.sums.diagonal()

    def step(self, images: Tensor, labels: Any = None) -> None:
        """Count a batch: one forward and one backward pass with respect to the images."""
        if self.steps % self.every == 0:
            self._collector.add(self.model, images, labels)
        self._stepped()

    def add(self, found: Gradients, labels: Any = None) -> None:
        """Count a batch whose gradients, for the predicted classes, were computed elsewhere: a step without a pass."""
        if self.steps % self.every == 0:
            self._collector.count(found, labels)
        self._stepped()

    def _stepped(self) -> None:
        self.steps += 1
        if self.snapshot_dir is not None and self.steps % self.snapshot_every == 0:
            self._snapshot(self.snapshot_dir)

    def finalize(self) -> AGOP:
        """The statistic so far, of all ranks together under torch.distributed. More steps may follow."""
        return self._agop(self._collector.total("step() was never called: call it once a batch"))

    def so_far(self) -> AGOP:
        """The statistic of this process alone. No collective: `finalize` joins all ranks."""
        rank, ranks = rank_and_world_size()
        return self._agop(self._collector.sums, rank=rank, ranks=ranks, parameters=parameters_digest(self.model))

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed training needs: tensors and plain values only."""
        return {
            "steps": self.steps,
            "seen": self._collector.seen,
            "options": self._options,
            "sums": self._collector.sums.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict` of a hook with the same options."""
        if not {"options", "steps", "seen", "sums"} <= state.keys():
            raise InputError(
                f"this is no state of a hook, its keys are {', '.join(list(state)[:5])}: pass hook.state_dict()"
            )
        different = {k: v for k, v in state["options"].items() if self._options.get(k) != v}
        if different:
            raise InputError(f"the saved hook had {different}, this one has other values: make it with the same")
        steps, seen = state["steps"], state["seen"]
        self._collector.sums.load_state_dict(state["sums"])
        self.steps, self._collector.seen = steps, seen

    @property
    def _options(self) -> dict[str, Any]:
        return self._collector.options | {"every": self.every}

    def _agop(self, sums: Accumulator, **more: Any) -> AGOP:
        return AGOP.from_sums(sums, self.model, TRAINING, self._options, steps=self.steps, **more)

    def _snapshot(self, folder: Path) -> None:
        """Write what was collected so far; a full disk must not end a training."""
        if self.count == 0:
            return
        try:
            snapshot = self.so_far()
            rank, world_size = rank_and_world_size()
            suffix = f"-rank{rank}" if world_size > 1 else ""
            snapshot.save(folder / f"step-{self.steps:08d}{suffix}.safetensors")
        except FileError as error:
            warn(f"no snapshot at step {self.steps}, training goes on: {error}")
