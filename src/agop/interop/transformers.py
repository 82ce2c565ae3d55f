"""AGOPTrainerCallback: diag(M) while a transformers.Trainer trains an image classifier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from agop.errors import FileError, InputError, MissingExtraError, ModelError, NoSamplesError, warn
from agop.interop.precision import precision_of_the_weights
from agop.interop.states import State, of_all_ranks, packed, share_of_rank, unpacked
from agop.statistic.agop import AGOP
from agop.statistic.hook import AGOPTrainingHook
from agop.system.distributed import rank_and_world_size

try:
    from transformers.trainer_callback import ExportableState, TrainerCallback
except ImportError as error:
    raise MissingExtraError("agop.interop.transformers", "transformers") from error

_NOT_YET = "there is no AGOP yet: call trainer.train with this callback"
_NO_BATCH = "no sample was counted: no batch was trained, are num_train_epochs or max_steps reached?"


class AGOPTrainerCallback(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers brings no types
    """Collects diag(M) over a Trainer's training batches, and leaves the training exactly as it was.

    Trainer(…, callbacks=[AGOPTrainerCallback()]) is all: every micro-batch counts once, with the weights it was
    trained with. At the end the statistic is in `prior` and in the file `out`, by default agop.safetensors in the
    output folder; the log tells `agop_count`, of the first process. Checkpoints hold what every process collected, in
    trainer_state.json. The other options are AGOPTrainingHook's; its steps are micro-batches.

    The batch is seen on its way into the model. Where the labels do not come along (label smoothing, a loss function
    of one's own) or the model is compiled, use AGOPTrainerCallback().attach(trainer) instead.
    """

    _passing: ClassVar[bool] = False  # while one callback counts, others that listen already hear its pass

    def __init__(
        self,
        out: str | os.PathLike[str] | None = None,
        only_correct: bool = True,
        every: int = 1,
        snapshot_every: int = 100,
        snapshot_dir: str | os.PathLike[str] | None = None,
        per_class: bool = False,
        *,
        nan: str = "raise",
    ) -> None:
        self.out = None if out is None else Path(out)
        self._prior: AGOP | None = None
        self._why_not = _NOT_YET
        self._options = {
            "only_correct": only_correct, "every": every, "snapshot_every": snapshot_every,
            "snapshot_dir": None if snapshot_dir is None else str(snapshot_dir), "per_class": per_class, "nan": nan,
        }  # fmt: skip
        AGOPTrainingHook(nn.Identity(), **self._options)  # type: ignore[arg-type]  # wrong options are told at once
        self._hook: AGOPTrainingHook | None = None
        self._gathered: tuple[int, list[State]] = (0, [])
        self._batch: tuple[Any, Any] | None = None
        self._listening: RemovableHandle | None = None
        self._attached = False

    @property
    def prior(self) -> AGOP:
        """The AGOP of the last training, of all processes together."""
        if self._prior is None:
            raise NoSamplesError(self._why_not)
        return self._prior

    @property
    def count(self) -> int:
        """How many samples were counted so far."""
        return 0 if self._hook is None else self._hook.count

    def attach(self, trainer: Any) -> AGOPTrainerCallback:
        """Join a trainer's callbacks and take each batch from its training_step, labels and all."""
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        label, inner = (trainer.label_names or ["labels"])[0], trainer.training_step

        def training_step(model: nn.Module, inputs: Mapping[str, Any], *more: Any, **named: Any) -> Any:
            self._batch = inputs.get(_images_name(trainer.model)), inputs.get(label)
            return inner(model, inputs, *more, **named)

        trainer.training_step = training_step
        self._attached = True
        return self

    def on_train_begin(self, args: Any, state: Any, _: Any, *, model: nn.Module, **__: Any) -> None:
        """Begin anew, or go on from the checkpoint that the trainer goes on from."""
        if args.n_gpu > 1 and not self._attached:
            raise InputError(f"{args.n_gpu} GPUs each see a part of a batch: use AGOPTrainerCallback().attach(trainer)")
        if args.restore_callback_states_from_checkpoint:
            raise InputError(
                "restore_callback_states_from_checkpoint would put another callback in this one's place: leave it out, "
                "AGOPTrainerCallback goes on from a checkpoint by itself"
            )
        self._forget()
        self._prior, self._why_not, self._gathered = None, _NOT_YET, (0, [])
        self._hook = AGOPTrainingHook(model, **self._options)  # type: ignore[arg-type]  # checked when made
        if state.global_step:
            self._resume(state, self._hook)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Look out for the first micro-batch of a step."""
        self._listen()

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """Count a micro-batch and look out for the next."""
        self._count()
        self._listen()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Count the last micro-batch of a step, before the weights change."""
        self._count()

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Be ready for a checkpoint."""
        last = state.global_step >= state.max_steps
        due = last or (state.save_steps > 0 and state.global_step % state.save_steps == 0)
        self._before_checkpoint(state, due and args.save_strategy == "steps")

    def on_epoch_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Be ready for a checkpoint."""
        self._before_checkpoint(state, args.save_strategy == "epoch")

    def on_evaluate(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Be ready for a checkpoint."""
        self._before_checkpoint(state, args.save_strategy == "best")

    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, Any] | None = None, **___: Any) -> None:
        """Tell the count beside the loss."""
        if logs is not None and self._hook is not None and not logs.keys().isdisjoint({"loss", "train_loss"}):
            logs["agop_count"] = state.log_history[-1]["agop_count"] = self.count

    def on_train_end(self, args: Any, state: Any, _: Any, **__: Any) -> None:
        """Finish the statistic and write it; a full disk or a model that learnt nothing must not lose a training."""
        self._forget()
        if self._hook is None:
            return
        try:
            self._prior = self._hook.finalize()
            if state.is_world_process_zero:
                self._prior.save(self.out or Path(args.output_dir) / "agop.safetensors")
        except NoSamplesError as error:
            self._why_not = str(error) if self._hook.steps else _NO_BATCH
            warn(f"no AGOP file was written: {self._why_not}")
        except FileError as error:
            warn(f"the AGOP is in callback.prior alone, save it elsewhere: {error}")

    def state(self) -> dict[str, Any]:
        """What the trainer writes into a checkpoint's trainer_state.json."""
        options = self._options | {"out": None if self.out is None else str(self.out)}
        return {"args": options, "attributes": {"collected": None if self._hook is None else self._text(self._hook)}}

    def _before_checkpoint(self, state: Any, due: bool) -> None:
        """Gather what the ranks have, for only one of them is asked for its state.

        That it is due, each rank tells from the same arguments: a checkpoint that a signal or a callback asks of one
        rank must not leave the others waiting, and has this rank's state alone.
        """
        if due and self._hook is not None:
            self._gathered = self._hook.steps, of_all_ranks(self._hook)
        # The trainer adds the states of two such callbacks to those of the checkpoint before.
        name = type(self).__name__
        if isinstance(state.stateful_callbacks.get(name), list):
            state.stateful_callbacks[name] = []

    def _text(self, hook: AGOPTrainingHook) -> str:
        """What the ranks collected, as text for a JSON file."""
        steps, states = self._gathered
        ranks = states if states and steps == hook.steps else [hook.state_dict()]
        return packed({"ranks": ranks, "of": rank_and_world_size()[1]})

    def _resume(self, state: Any, hook: AGOPTrainingHook) -> None:
        found = state.stateful_callbacks.get(type(self).__name__) or []
        alike = [one for one in found if one["args"] == self.state()["args"]] if isinstance(found, list) else [found]
        collected = alike[-1]["attributes"].get("collected") if alike else None
        if collected is None:
            warn(f"the checkpoint holds no AGOP: collected from step {state.global_step} on")
            return
        held = unpacked(collected)
        if len(held["ranks"]) < held["of"]:
            warn(f"the checkpoint holds what one of {held['of']} processes collected: it was not made on schedule")
        hook.load_state_dict(share_of_rank(held["ranks"]))

    def _listen(self) -> None:
        """Wait for one training batch at the model's door: a hook that removes itself leaves nothing after an error."""
        if self._hook is None or self._attached:
            return
        self._forget()
        self._listening = self._hook.model.register_forward_pre_hook(self._see, with_kwargs=True)

    def _see(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if AGOPTrainerCallback._passing:
            return
        self._forget()
        if not (model.training and torch.is_grad_enabled()):
            return  # an evaluation: an error had ended the training before its batch came
        self._batch = named.get(_images_name(model), inputs[0] if inputs else None), named.get("labels")

    def _forget(self) -> None:
        self._batch = None
        if self._listening is not None:
            self._listening.remove()
            self._listening = None

    def _count(self) -> None:
        batch, hook = self._batch, self._hook
        self._forget()
        if hook is None:
            return
        images, labels = batch or (None, None)
        if images is None:
            raise ModelError(
                f"no {_images_name(hook.model)} came into the model in this training step (is it compiled, or the step "
                "your own?): use AGOPTrainerCallback().attach(trainer)"
            )
        if labels is None and self._options["only_correct"]:
            raise InputError(
                "the labels did not come into the model (label smoothing, or a loss function of your own): use "
                "AGOPTrainerCallback().attach(trainer), or only_correct=False"
            )
        AGOPTrainerCallback._passing = True
        try:
            with precision_of_the_weights(hook.model):
                hook.step(images, labels)
        finally:
            AGOPTrainerCallback._passing = False


def _images_name(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "pixel_values"))
