"""AGOPCallback: collects diag(M) during Lightning's Trainer.fit."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from agop.collect.fit import images_and_labels
from agop.collect.hook import AGOPTrainingHook
from agop.errors import InputError, MissingExtraError, ModelError, warn
from agop.integrations.callback import TrainingCallback, state_for_this_rank
from agop.processes import gathered

_SHARDED = ("FSDPStrategy", "ModelParallelStrategy")
# Lightning's Callback: of both its packages if both are imported already, else of the first that is installed.
_INSTALLED = [name for name in ("lightning.pytorch", "pytorch_lightning") if find_spec(name.partition(".")[0])]
_PACKAGES = [name for name in _INSTALLED if name in sys.modules] or _INSTALLED[:1]
if not _PACKAGES:
    raise MissingExtraError("agop.integrations.lightning", "lightning")
_Callback: Any = type("Callback", tuple(import_module(name).Callback for name in _PACKAGES), {})


class AGOPCallback(TrainingCallback, _Callback):  # type: ignore[misc]
    """Collect diag(M) during Trainer.fit. The training itself is unchanged, bit for bit.

    Every training batch is counted after its training_step, also while gradients accumulate. Gradients have the
    precision of the weights: float32 under "bf16-mixed" and "16-mixed".

    At the end of fit the AGOP of all ranks is `callback.prior`, and is written to `out`, except with fast_dev_run. If
    fit raises, each process saves what it has collected beside `out`, as agop.interrupted.safetensors.

    Checkpoints contain the statistic. A fit that resumes a checkpoint resumes the statistic. Any other fit starts from
    zero, except a second fit of the same Trainer and module. The logger gets agop/count, the samples counted so far (of
    rank 0 under DDP), and agop/top, the share of diag(M) in its highest 1%.

    A custom callback that saves checkpoints in on_train_batch_end must come after this one in the Trainer's list.
    Lightning moves ModelCheckpoint to the end itself.

    Args:
        out: The AGOP file, relative to the current folder (not to default_root_dir). None for no file.
        model: The part of the LightningModule to explain: its name ("net"), or a function of the module. By default the
            module's forward.
        options: Those of `AGOPTrainingHook`: every, only_correct, per_class, snapshot_every, snapshot_dir, nan,
            patches, layer, rank, output, forward.

    Raises:
        InputError: Invalid options.

    Example:
        >>> callback = AGOPCallback(every=10)
        >>> Trainer(callbacks=[callback]).fit(module, loader)  # then callback.prior
    """

    _not_trained = "no AGOP yet: call trainer.fit with this callback (under ddp_spawn only the file has it)"
    _no_batch = "no sample was counted: no batch was trained, are max_epochs or max_steps reached?"

    def __init__(
        self,
        *,
        out: str | os.PathLike[str] | None = "agop.safetensors",
        model: str | Callable[[Any], nn.Module] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(out, **options)
        self.model = model
        self._loaded: dict[str, Any] | None = None
        self._fitting = False

    @property
    def state_key(self) -> str:
        """Key in a checkpoint. It contains the part's name, so two callbacks can explain two parts."""
        return f"AGOPCallback({self._part})"

    @property
    def _part(self) -> str:
        return "part" if callable(self.model) else self.model or ""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forget an earlier fit, unless this one continues it."""
        if stage == "fit":
            self._loaded = None
            self._forget_prior()
            if trainer.global_step == 0:
                self._hook = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Create the hook, and load its state from the checkpoint if fit resumes one."""
        check_strategy(trainer.strategy)
        model = self._explained_model(pl_module)
        no_state = trainer.ckpt_path is not None and self._loaded is None
        # Strategies that load checkpoints after setup call load_state_dict later.
        if no_state and not trainer.strategy.restore_checkpoint_after_setup:
            warn(f"{trainer.ckpt_path} has no AGOP of this callback: collecting starts here")
        if self._hook is None or self._hook.model is not model or no_state:
            without_snapshots = {"snapshot_dir": None} if trainer.fast_dev_run else {}
            self._hook = AGOPTrainingHook(model, **self._options | without_snapshots)
        self._fitting = True
        if self._loaded is not None:
            self.load_state_dict(self._loaded)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the batch."""
        if self._hook is None or batch is None:
            return
        images, labels = images_and_labels(batch)
        # No autocast: float16 gradients underflow without a scaled loss. The plugin's context sets the default dtype
        # under "bf16-true", where tensors created in forward must have that dtype.
        with trainer.precision_plugin.forward_context(), torch.autocast(pl_module.device.type, enabled=False):
            self._hook.step(images, labels)
        every, automatic = trainer.log_every_n_steps, pl_module.automatic_optimization
        # In manual optimization a batch may have any number of steps.
        if trainer.loggers and every > 0 and (not automatic or trainer.global_step % every == 0):
            name = f"agop/{self._part}" if self._part else "agop"
            values = {f"{name}/count": float(self._hook.count)}
            if self._hook.count:
                diagonal = self._hook.diagonal.flatten()
                highest = diagonal.topk(-(-len(diagonal) // 100)).values
                values[f"{name}/top"] = float(highest.sum() / diagonal.sum())
            pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=len(images))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Merge all ranks; rank 0 writes the file."""
        self._fitting = False
        self._finish(None if trainer.fast_dev_run else self.out, trainer.is_global_zero)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Save what this process has collected. No collective call: the other ranks may have ended."""
        fitting, self._fitting = self._fitting, False
        if not fitting or self._hook is None or self._hook.count == 0:
            return
        rank = f"-rank{trainer.global_rank}" if trainer.world_size > 1 else ""
        try:
            self._prior = self._hook.so_far()
            if self.out is not None and not trainer.fast_dev_run:
                self._prior.save(self.out.with_name(f"{self.out.stem}.interrupted{rank}{self.out.suffix}"))
        except Exception as error:  # a GPU may be lost; the user needs the error that ended fit, not this one
            warn(f"the AGOP collected before the error was not written: {error}")

    def state_dict(self) -> dict[str, Any]:
        """The hook's state of every rank, for a checkpoint. A collective call, like Trainer.save_checkpoint."""
        if self._hook is None:
            # Not {}, which Lightning doesn't save: its tuner restores a checkpoint from before the hook exists.
            return self._loaded or {"ranks": []}
        # Not their sum: a float64 sum in another order differs in its last bit.
        return {"ranks": gathered(self._hook.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state in fit. A checkpoint loaded for Trainer.test changes nothing."""
        self._loaded = state
        if self._fitting and self._hook is not None:
            if state["ranks"]:
                self._hook.load_state_dict(state_for_this_rank(state["ranks"]))
            self._loaded = None

    def _explained_model(self, module: Any) -> nn.Module:
        if callable(self.model):
            return self.model(module)
        if self.model is not None:
            try:
                return module.get_submodule(self.model)  # type: ignore[no-any-return]
            except AttributeError as error:
                parts = ", ".join(name for name, _ in module.named_children()) or "none"
                raise InputError(
                    f"model is {self.model!r}, but {type(module).__name__} has no such part: choose one of {parts}"
                ) from error
        # By name: the class may be of either Lightning package.
        if type(module).forward.__qualname__ == "LightningModule.forward":
            raise InputError(
                f"{type(module).__name__} has no forward to explain: define one that returns logits, or select the "
                "part that does, AGOPCallback(model='net')"
            )
        return module  # type: ignore[no-any-return]


def check_strategy(strategy: Any) -> None:
    """Raise ModelError for a strategy that shards the weights: no rank has the whole model."""
    if type(strategy).__name__ in _SHARDED or getattr(strategy, "zero_stage_3", False):
        raise ModelError(
            f"{type(strategy).__name__} shards the weights over the ranks, so no rank can compute input gradients: "
            "train with strategy='ddp', or call agop.fit on the trained model"
        )
