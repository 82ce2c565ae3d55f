"""AGOPCallback: diag(M) collected inside Lightning's Trainer.fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import FileError, InputError, MissingExtraError, ModelError, NoSamplesError, warn
from agop.interop.states import of_all_ranks, share_of_rank
from agop.statistic.agop import AGOP
from agop.statistic.fitting import images_and_labels
from agop.statistic.hook import AGOPTrainingHook

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_SHARDED = ("FSDPStrategy", "ModelParallelStrategy")
_NOT_YET = "there is no AGOP yet: call trainer.fit with this callback (under ddp_spawn only the file has it)"
_NO_BATCH = "no sample was counted: no batch was trained, are max_epochs or max_steps reached?"


def _callback_class() -> type:
    """Lightning's Callback: of both its packages if both are imported already, else of the first that is installed."""
    installed = [name for name in _PACKAGES if find_spec(name.partition(".")[0]) is not None]
    names = [name for name in installed if name in sys.modules] or installed[:1]
    if not names:
        raise MissingExtraError("agop.interop.lightning", "lightning")
    return type("Callback", tuple(import_module(name).Callback for name in names), {})


_Callback: Any = _callback_class()


class AGOPCallback(_Callback):  # type: ignore[misc]
    """Collects diag(M) in Trainer.fit, and leaves the training exactly as it was.

    Every training batch counts after its training_step, also within an accumulated gradient; with
    `every_n_steps`=k only each k-th batch makes a pass. Explained is the LightningModule itself, by its forward,
    or the part that `model` names ("net") or gives (a function of the module). Gradients are taken in the precision
    of the weights: under "bf16-mixed" and "16-mixed" in float32.

    At the end of fit the statistic of all ranks is written to `out`, by default agop.safetensors in the current folder,
    whatever the Trainer's default_root_dir (None: nowhere; nor under fast_dev_run), and is there as `callback.prior`.
    If an error ends fit, what this process had is written beside it, as agop.interrupted.safetensors. Checkpoints hold
    the statistic: a fit that resumes goes on with it, any other fit starts anew, unless it goes on with the same
    Trainer and module. The logger gets agop/count, the samples counted so far (under DDP those of rank 0), and
    agop/top, the share of diag(M) in its highest hundredth.

    A callback of your own that saves checkpoints in on_train_batch_end belongs after this one in the Trainer's list;
    ModelCheckpoint is last by itself.
    """

    def __init__(
        self,
        every_n_steps: int = 1,
        only_correct: bool = True,
        out: str | os.PathLike[str] | None = "agop.safetensors",
        snapshot_every: int = 100,
        snapshot_dir: str | os.PathLike[str] | None = None,
        per_class: bool = False,
        *,
        model: str | Callable[[Any], nn.Module] | None = None,
        nan: str = "raise",
    ) -> None:
        if out is not None and Path(out).is_dir():
            raise InputError(f"out {out} is a folder: give a file, {Path(out) / 'agop.safetensors'}")
        self.out = None if out is None else Path(out)
        self.model = model
        self._options: dict[str, Any] = {
            "only_correct": only_correct, "every": every_n_steps, "snapshot_every": snapshot_every,
            "snapshot_dir": snapshot_dir, "per_class": per_class, "nan": nan,
        }  # fmt: skip
        AGOPTrainingHook(nn.Identity(), **self._options)  # options that make no sense are told now, not in fit
        self._hook: AGOPTrainingHook | None = None
        self._loaded: dict[str, Any] | None = None
        self._fitting = False
        self._prior: AGOP | None = None
        self._why_not = _NOT_YET

    @property
    def prior(self) -> AGOP:
        """The AGOP of the last fit, of all ranks together."""
        if self._prior is None:
            raise NoSamplesError(self._why_not)
        return self._prior

    @property
    def state_key(self) -> str:
        """One for each part explained, so that a Trainer can have a callback for each of two parts."""
        return f"AGOPCallback({self._part})"

    @property
    def _part(self) -> str:
        return "part" if callable(self.model) else self.model or ""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forget an earlier fit, unless this one goes on with it."""
        if stage == "fit":
            self._loaded = self._prior = None
            self._why_not = _NOT_YET
            if trainer.global_step == 0:
                self._hook = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the hook, and go on from the checkpoint if there was one."""
        check_strategy(trainer.strategy)
        model = self._explained(pl_module)
        unsaid = trainer.ckpt_path is not None and self._loaded is None
        # Strategies that read checkpoints later than this give the state, if there is one, to load_state_dict.
        if unsaid and not trainer.strategy.restore_checkpoint_after_setup:
            warn(f"{trainer.ckpt_path} holds no AGOP of this callback: what is collected begins here")
        if self._hook is None or self._hook.model is not model or unsaid:
            quiet = {"snapshot_dir": None} if trainer.fast_dev_run else {}
            self._hook = AGOPTrainingHook(model, **self._options | quiet)
        self._fitting = True
        if self._loaded is not None:
            self.load_state_dict(self._loaded)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the batch."""
        if self._hook is None or batch is None:
            return
        images, labels = images_and_labels(batch)
        # Autocast off: float16 gradients would underflow without a loss to scale. The plugin's context is for
        # "bf16-true", where what a forward pass makes has to be of that type, too.
        with trainer.precision_plugin.forward_context(), torch.autocast(pl_module.device.type, enabled=False):
            self._hook.step(images, labels)
        if trainer.loggers and _log_is_due(trainer, pl_module):
            self._log(pl_module, self._hook, len(images))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Join all ranks; rank 0 writes the file. What goes wrong here must not end a training that is done."""
        self._fitting = False
        if self._hook is None:
            return
        out = None if trainer.fast_dev_run else self.out
        try:
            self._prior = self._hook.finalize()
            if out is not None and trainer.is_global_zero:
                self._prior.save(out)
        except NoSamplesError as error:
            self._why_not = str(error) if self._hook.steps else _NO_BATCH
            if out is not None:
                warn(f"no AGOP was written: {self._why_not}")
        except FileError as error:
            warn(f"the AGOP is in callback.prior alone, save it elsewhere: {error}")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write beside `out` what this process had; no other rank may be there any more."""
        collected = self._fitting and self._hook is not None and self._hook.count > 0
        self._fitting = False
        if self._hook is None or not collected:
            return
        rank = f"-rank{trainer.global_rank}" if trainer.world_size > 1 else ""
        try:
            self._prior = self._hook.so_far()
            if self.out is not None and not trainer.fast_dev_run:
                self._prior.save(self.out.with_name(f"{self.out.stem}.interrupted{rank}{self.out.suffix}"))
        except Exception as error:  # a GPU may be gone: the error to be told is the one that ended fit
            warn(f"what was collected until the error was not written: {error}")

    def state_dict(self) -> dict[str, Any]:
        """The hook's state of every rank, for the checkpoint. A collective, as Trainer.save_checkpoint is."""
        if self._hook is None:
            # No rank yet, but not {}, which Lightning wouldn't save: its tuner restores a checkpoint from before fit.
            return self._loaded or {"ranks": []}
        return {"ranks": of_all_ranks(self._hook)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, in a fit; one that is loaded for Trainer.test changes nothing."""
        self._loaded = state
        if self._fitting and self._hook is not None:
            if state["ranks"]:
                self._hook.load_state_dict(share_of_rank(state["ranks"]))
            self._loaded = None

    def _explained(self, module: Any) -> nn.Module:
        if callable(self.model):
            return self.model(module)
        if self.model is not None:
            try:
                return module.get_submodule(self.model)  # type: ignore[no-any-return]
            except AttributeError as error:
                parts = ", ".join(name for name, _ in module.named_children()) or "none"
                raise InputError(
                    f"model is {self.model!r}, the parts of {type(module).__name__} are {parts}: name one of these"
                ) from error
        if type(module).forward.__qualname__ == "LightningModule.forward":
            raise InputError(
                f"{type(module).__name__} has no forward to explain: write one that gives logits, or name the part "
                "that does, AGOPCallback(model='net')"
            )
        return module  # type: ignore[no-any-return]

    def _log(self, module: Any, hook: AGOPTrainingHook, samples: int) -> None:
        name = f"agop/{self._part}" if self._part else "agop"
        module.log(f"{name}/count", float(hook.count), on_step=True, on_epoch=False, batch_size=samples)
        if hook.count:
            module.log(f"{name}/top", _top(hook.diagonal), on_step=True, on_epoch=False, batch_size=samples)


def check_strategy(strategy: Any) -> None:
    """Raise for a strategy that leaves no whole model on a rank."""
    if type(strategy).__name__ in _SHARDED or getattr(strategy, "zero_stage_3", False):
        raise ModelError(
            f"{type(strategy).__name__} splits the weights over the ranks, so that none of them can be asked for input "
            "gradients: train with strategy='ddp', or call agop.fit on the trained model"
        )


def _log_is_due(trainer: Any, module: Any) -> bool:
    """True in the steps that Lightning logs; in manual optimization, whose steps differ from batches, always."""
    every = trainer.log_every_n_steps
    return every > 0 and (not module.automatic_optimization or trainer.global_step % every == 0)


def _top(diagonal: Tensor) -> float:
    """The share of diag(M) in its highest hundredth."""
    values = diagonal.flatten()
    return float(values.topk(-(-len(values) // 100)).values.sum() / values.sum())
