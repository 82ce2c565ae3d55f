"""AGOPTrainingHook: collects the AGOP inside a training loop."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import FileError, InputError, warn
from agop.model.fingerprint import parameters_digest
from agop.model.layers import Layer
from agop.model.probe import Gradients, check_model
from agop.statistic.accumulator import Accumulator
from agop.statistic.agop import AGOP
from agop.statistic.collector import Collector
from agop.statistic.convergence import Convergence
from agop.statistic.pacing import AUTO, pace_for
from agop.statistic.provenance import TRAINING
from agop.system.distributed import rank_and_world_size

# Cosine with diag(M) of all batches below which every="auto" warns.
_CONVERGED = 0.99


class AGOPTrainingHook:
    """Collects diag(M) while a model trains, without changing the training.

    Call `step` once per batch, before or after optimizer.step(), and `finalize` at the end. With `every`=k only every
    k-th call runs the model; every="auto" times the first passes and chooses k so that they take at most 15 % of the
    training's time. `finalize` then warns if diag(M) of these batches may differ from that of all. With `snapshot_dir`,
    the current AGOP is written there every `snapshot_every` calls, as step-00000100.safetensors and so on; under
    torch.distributed each rank writes its own. `finalize` joins all ranks. With nan="skip", samples whose gradient
    isn't finite are skipped and counted. `patches`, `layer`, `rank` and `output` are as in `fit`.
    """

    def __init__(
        self,
        model: nn.Module,
        only_correct: bool = True,
        every: int | str = 1,
        snapshot_every: int = 100,
        snapshot_dir: str | os.PathLike[str] | None = None,
        per_class: bool = False,
        *,
        nan: str = "raise",
        patches: bool = True,
        layer: Layer = None,
        rank: int = 0,
        output: str = "predicted",
    ) -> None:
        if not isinstance(snapshot_every, int) or snapshot_every < 1:
            raise InputError(f"snapshot_every is {snapshot_every}: give a positive integer")
        check_model(model)
        if snapshot_dir is not None and Path(snapshot_dir).is_file():
            raise InputError(f"snapshot_dir {snapshot_dir} is a file: give a folder")
        self.model = model
        self.every = every
        self._pace = pace_for(every, next((p.device for p in model.parameters()), torch.device("cpu")))
        self._convergence = Convergence() if every == AUTO else None
        self.snapshot_every = snapshot_every
        self.snapshot_dir = None if snapshot_dir is None else Path(snapshot_dir)
        self.steps = 0
        self._training = uuid.uuid4().hex[:16]  # from the operating system: no generator of the process is used
        self._collector = Collector(
            model, only_correct=only_correct, per_class=per_class, nan=nan, patches=patches, layer=layer, rank=rank,
            output=output,
        )  # fmt: skip

    @property
    def count(self) -> int:
        """Number of samples that this process has counted so far."""
        return self._collector.sums.count

    @property
    def diagonal(self) -> Tensor:
        """diag(M) (C,H,W) of the samples that this process has counted so far."""
        return self._collector.sums.diagonal()

    @property
    def convergence(self) -> float | None:
        """Estimated cosine of diag(M) with that of all batches. None without every="auto", and before two passes."""
        return None if self._convergence is None else self._convergence.cosine(rank_and_world_size()[1])

    def step(self, images: Tensor, labels: Any = None) -> None:
        """Add a batch: one forward pass, and one backward pass with respect to the images."""
        with self._pace.call(self.steps) as due:
            if due:
                self._collector.add(self.model, images, labels)
                self._passed()
        self._stepped()

    def add(self, gradients: Gradients, labels: Any = None, images: Tensor | None = None) -> None:
        """Add a batch whose gradients for the predicted classes are already computed: a step without a pass.

        Without its images, the AGOP has no `image_moments`.
        """
        with self._pace.call(self.steps) as due:
            if due:
                self._collector.count(gradients, labels, images)
                self._passed()
        self._stepped()

    def _passed(self) -> None:
        if self._convergence is not None:
            self._convergence.add(self._collector.sums.total())

    def _stepped(self) -> None:
        self.steps += 1
        if self.snapshot_dir is not None and self.steps % self.snapshot_every == 0:
            self._snapshot(self.snapshot_dir)

    def finalize(self) -> AGOP:
        """The AGOP so far, of all ranks under torch.distributed. More steps may follow."""
        sums = self._collector.total("step() was never called: call it once per batch")
        self._check_convergence()
        return self._agop(sums)

    def _check_convergence(self) -> None:
        """Warn if every="auto" used so few batches that their diag(M) may differ from that of all."""
        if self._convergence is None or self._convergence.passes == self.steps:
            return
        cosine = self.convergence
        if cosine is None or cosine < _CONVERGED:
            estimate = "too few were used for an estimate" if cosine is None else f"estimated cosine {cosine:.2f}"
            warn(
                f"diag(M) may differ from that of all {self.steps} batches, of which every={AUTO!r} skips many "
                f"({estimate}): train longer, or pass every=1, which takes more time"
            )

    def so_far(self) -> AGOP:
        """The AGOP so far of this process alone. Not a collective; `finalize` joins all ranks."""
        rank, ranks = rank_and_world_size()
        parameters = parameters_digest(self.model)
        return self._agop(self._collector.sums, rank=rank, ranks=ranks, parameters=parameters, training=self._training)

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a training: tensors and plain values only."""
        return {
            "steps": self.steps,
            "seen": self._collector.seen,
            "training": self._training,
            "options": self._options,
            "pace": self._pace.state(),
            "convergence": None if self._convergence is None else self._convergence.state(),
            "sums": self._collector.sums.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the `state_dict` of a hook with the same options."""
        if not {"options", "steps", "seen", "sums"} <= state.keys():
            raise InputError(
                f"this isn't the state of a hook, its keys are {', '.join(list(state)[:5])}: pass hook.state_dict()"
            )
        different = {k: v for k, v in state["options"].items() if self._options.get(k) != v}
        if different:
            raise InputError(
                f"the saved hook had {different}, this one has other values: create it with the same options"
            )
        steps, seen = state["steps"], state["seen"]
        self._collector.sums.load_state_dict(state["sums"])
        self.steps, self._collector.seen = steps, seen
        # States of earlier versions have none of these.
        self._training = state.get("training", self._training)
        self._pace.load(state.get("pace", {}))
        if self._convergence is not None:
            self._convergence.load(state.get("convergence"), self._collector.sums.total())

    @property
    def _options(self) -> dict[str, Any]:
        return self._collector.options | {"every": self.every}

    def _agop(self, sums: Accumulator, **more: Any) -> AGOP:
        return AGOP.from_sums(sums, self.model, TRAINING, self._options, steps=self.steps, **more)

    def _snapshot(self, folder: Path) -> None:
        """Write the current AGOP. A full disk must not stop a training."""
        if self.count == 0:
            return
        try:
            snapshot = self.so_far()
            rank, world_size = rank_and_world_size()
            suffix = f"-rank{rank}" if world_size > 1 else ""
            snapshot.save(folder / f"step-{self.steps:08d}{suffix}.safetensors")
        except FileError as error:
            warn(f"no snapshot at step {self.steps}, training continues: {error}")
