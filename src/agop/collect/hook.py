"""AGOPTrainingHook: collects the AGOP inside a training loop, on all steps or on some."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from agop.collect.fit import CollectKeywords, CollectOptions, Collector
from agop.collect.tune import SCORED
from agop.collect.tune import tune as choose_exponents
from agop.errors import FileError, InputError, warn
from agop.model.probe import Gradients, check_model
from agop.model.state import parameters_digest, refuse_sharded
from agop.prior.accumulator import Accumulator
from agop.prior.agop import AGOP, TRAINING
from agop.processes import gathered, rank_and_world_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

AUTO = "auto"
# The share of the training's time that passes may take is 15 %. The rest is for errors of measurement: with five timed
# passes, the interval of a ResNet-18 was once a fifth too short.
_SHARE = 0.10
_FIRST_INTERVAL, _MEASURED_PASSES = 8, 9
# Cosine with diag(M) of all batches below which every="auto" warns.
_CONVERGED = 0.99


class AGOPTrainingHook:
    """Collects diag(M) (C,H,W) while a model trains, without changing the training, bit for bit.

    Call `step` once per batch, before or after optimizer.step(), and `finalize` at the end, which joins all ranks of
    torch.distributed.

    Args:
        model: The model in training.
        only_correct: Count only samples that the model classifies correctly; the default for outputs with classes.
        every: k for a pass on every k-th call only. "auto" times the first passes and chooses k so that they take at
            most 15 % of the training's time; `finalize` then warns if diag(M) may differ from that of all batches.
        snapshot_every: Calls between snapshots.
        snapshot_dir: Folder for snapshots of the current AGOP, step-00000100.safetensors and so on; under
            torch.distributed each rank writes its own. None for no snapshots.
        per_class: Also keep diag(M) of each class.
        options: The other options of `agop.collect.fit.CollectOptions`: nan, patches, layer, rank, output, forward.

    Raises:
        InputError: Invalid options.

    Example:
        >>> hook = agop.AGOPTrainingHook(model, every=10)
        >>> hook.step(images, labels)  # once per batch; then prior = hook.finalize()
    """

    def __init__(
        self,
        model: nn.Module,
        only_correct: bool | None = None,
        every: int | str = 1,
        snapshot_every: int = 100,
        snapshot_dir: str | os.PathLike[str] | None = None,
        per_class: bool = False,
        **options: Unpack[CollectKeywords],
    ) -> None:
        check_model(model)
        refuse_sharded(model.modules())
        chosen = CollectOptions.of(AGOPTrainingHook, only_correct=only_correct, per_class=per_class, **options)
        if not isinstance(snapshot_every, int) or snapshot_every < 1:
            raise InputError(f"snapshot_every is {snapshot_every}: give a positive integer")
        if snapshot_dir is not None and Path(snapshot_dir).is_file():
            raise InputError(f"snapshot_dir {snapshot_dir} is a file: give a folder")
        self.model = model
        self.every = every
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._pace = Pace(every, lambda: _synchronized_time(device), self._weigh)
        self._convergence = Convergence() if every == AUTO else None
        self.snapshot_every = snapshot_every
        self.snapshot_dir = None if snapshot_dir is None else Path(snapshot_dir)
        self.steps = 0
        self._training = uuid.uuid4().hex[:16]  # from the operating system: no generator of the process is used
        self._collector = Collector(model, chosen)
        self._options = chosen.recorded() | {"every": every}
        self._last: Tensor | None = None

    @property
    def needs_labels(self) -> bool:
        """True if only correctly classified samples count."""
        return self._collector.options.needs_labels

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
        """Add a batch: one forward pass, and one backward pass with respect to the images.

        Args:
            images: The images (N,C,H,W) that the model is trained on.
            labels: Their classes (N,), needed for outputs with classes unless only_correct=False.
        """
        self._step(lambda: self._collector.add(self.model, images, labels), images)

    def add(self, gradients: Gradients, labels: Any = None, images: Tensor | None = None) -> None:
        """Add a batch whose gradients for the predicted classes are already computed: a step without a pass.

        Without its images, the AGOP has no `image_moments`.
        """
        self._step(lambda: self._collector.count(gradients, labels, images), images)

    def _weigh(self, weight: float) -> None:
        """Let the passes so far count by their distance, relative to that of later ones."""
        self._collector.sums.weigh(weight)
        if self._convergence is not None:
            self._convergence.weigh(weight)

    def _step(self, collect: Callable[[], None], images: Tensor | None) -> None:
        with self._pace.call(self.steps) as due:
            if due:
                collect()
                self._last = None if images is None else images[:SCORED].detach().clone()
                if self._convergence is not None:
                    self._convergence.add(self._collector.sums.total())
        self.steps += 1
        if self.snapshot_dir is not None and self.steps % self.snapshot_every == 0 and self.count:
            rank, world_size = rank_and_world_size()
            suffix = f"-rank{rank}" if world_size > 1 else ""
            try:
                self.so_far().save(self.snapshot_dir / f"step-{self.steps:08d}{suffix}.safetensors")
            except FileError as error:  # a full disk must not stop a training
                warn(f"no snapshot at step {self.steps}, training continues: {error}")

    def finalize(self, tune: bool = True) -> AGOP:
        """The AGOP so far, of all ranks under torch.distributed, where every rank must call it. More steps may follow.

        Args:
            tune: Choose the exponent of `agop`'s factor *where* on the last batch used, without masks. Not with several
                ranks.

        Raises:
            NoSamplesError: No sample was counted.
        """
        sums, cosine = self._collector.total("step() was never called: call it once per batch"), self.convergence
        thinned = self._convergence is not None and self._convergence.passes < self.steps
        if thinned and (cosine is None or cosine < _CONVERGED):
            estimate = "too few were used for an estimate" if cosine is None else f"estimated cosine {cosine:.2f}"
            warn(
                f"diag(M) may differ from that of all {self.steps} batches, of which every={AUTO!r} skips many "
                f"({estimate}): train longer, or pass every=1, which takes more time"
            )
        prior, alone = self._agop(sums), rank_and_world_size()[1] == 1
        if not tune or not alone or self._last is None:
            return prior
        return choose_exponents(self.model, prior, self._last, self._collector.options.explained, progress=False)

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
        different = {name: state["options"].get(name) for name in self._options}
        different = {name: value for name, value in different.items() if value != self._options[name]}
        if different:
            raise InputError(
                f"the saved hook had {different}, this one has other values: create it with the same options"
            )
        self._collector.sums.load_state_dict(state["sums"])
        self.steps, self._collector.seen, self._training = state["steps"], state["seen"], state["training"]
        self._pace.load(state["pace"])
        if self._convergence is not None:
            self._convergence.load(state["convergence"], self._collector.sums.total())

    def _agop(self, sums: Accumulator, **more: Any) -> AGOP:
        return AGOP.from_sums(sums, self.model, TRAINING, self._options, steps=self.steps, **more)


class Convergence:
    """Compares the sums of every other pass with those of the passes between them.

    With shuffled batches, both are the diagonal of all batches plus noise. If r is the noise's squared norm over that
    of the diagonal, the cosine between them is 1 / (1 + r), and that of their sum with the diagonal 1 / √(1 + r/2).
    """

    def __init__(self) -> None:
        self.passes = 0
        self._total = torch.zeros(())
        # Sums (C,H,W) of the latest pass and every other one before it, and of those between them.
        self._latest = self._between = torch.zeros(())

    def add(self, total: Tensor) -> None:
        """Add a pass, by the sums (C,H,W) after it. One without a gradient, as without a correct sample, is skipped."""
        total = total.cpu()
        more = total - self._total
        if bool(more.any()):
            self._latest, self._between = self._between + more, self._latest
            self._total, self.passes = total, self.passes + 1

    def weigh(self, weight: float) -> None:
        """Multiply the sums so far by a weight."""
        self._total, self._latest, self._between = (
            weight * sums for sums in (self._total, self._latest, self._between)
        )

    def cosine(self, ranks: int = 1) -> float | None:
        """Estimated cosine with diag(M) of all batches, if each of the ranks has as many passes. None before two."""
        if self.passes < 2:
            return None
        # Divided by the norms first: sums of tiny squares must not vanish.
        latest, between = (half / half.norm() for half in (self._latest, self._between))
        noise = 1 / float((latest * between).sum().clamp(1e-12, 1)) - 1
        return float((1 + noise / (2 * ranks)) ** -0.5)

    def state(self) -> dict[str, Any]:
        """What a resumed training needs besides its sums."""
        return {"passes": self.passes, "latest": self._latest.clone(), "between": self._between.clone()}

    def load(self, state: dict[str, Any] | None, total: Tensor) -> None:
        """Resume from a state and the sums (C,H,W) at that time. Without a state, only later passes are compared."""
        state = Convergence().state() if state is None else state
        self.passes, self._total = state["passes"], total.cpu()
        self._latest, self._between = state["latest"].cpu(), state["between"].cpu()


class Pace:
    """Decides on which calls a pass is made: on calls 0, k, 2k … for every=k.

    "auto" makes one on every 8th call until nine passes are timed, then on every k-th, so that passes take at most 15 %
    of the training's time. k stays the same then, on all ranks. `weigh` is called with 8/k, the weight of the passes
    before: each pass stands for the calls around it, so every part of the training counts alike.
    """

    def __init__(self, every: int | str, clock: Callable[[], float], weigh: Callable[[float], None]) -> None:
        if every != AUTO and (not isinstance(every, int) or every < 1):
            raise InputError(f"every is {every!r}: give a positive integer or {AUTO!r}")
        self._clock, self._weigh, self._fixed = clock, weigh, every if isinstance(every, int) else None
        self._interval, self._next, self._decided = _FIRST_INTERVAL, 0, False
        self._passes: list[float] = []
        self._between: list[float] = []
        self._left: float | None = None

    @contextmanager
    def call(self, step: int) -> Iterator[bool]:
        """True if a pass is due on this call. "auto" times the pass, and the training between two calls."""
        if self._fixed is not None:
            yield step % self._fixed == 0
            return
        due = step >= self._next
        before = self._interval
        if self._decided:
            yield due
        else:
            start = self._clock()
            yield due
            self._measured(start, self._clock(), due)
        if due:
            self._next = step + (before + self._interval) // 2  # half of this pass's calls, half of the next one's

    def _measured(self, start: float, end: float, due: bool) -> None:
        if self._left is not None:
            self._between.append(start - self._left)
        self._left = end
        if due:
            self._passes.append(end - start)
        if len(self._passes) == _MEASURED_PASSES:
            own = max(1, math.ceil(median(self._passes) / (_SHARE * median(self._between))))
            self._interval, self._decided = max(gathered(own)), True
            self._weigh(_FIRST_INTERVAL / self._interval)

    def state(self) -> dict[str, int]:
        """What a resumed training with "auto" needs: the interval, whether it is final, the next call with a pass."""
        if self._fixed is not None:
            return {}
        return {"interval": self._interval, "next": self._next, "decided": int(self._decided)}

    def load(self, state: dict[str, int]) -> None:
        """Resume. A training that was interrupted while passes were timed times them again."""
        if self._fixed is None:
            self._interval, self._next, self._decided = state["interval"], state["next"], bool(state["decided"])


def _synchronized_time(device: torch.device) -> float:
    """Seconds, after all work on the device: an accelerator works while Python continues."""
    if device.type not in ("cpu", "meta"):
        torch.get_device_module(device).synchronize(device)
    return time.perf_counter()
