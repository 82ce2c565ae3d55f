"""AGOPTrainerCallback: collects diag(M) while a transformers.Trainer trains an image classifier."""

from __future__ import annotations

import io
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from agop.collect.hook import AGOPTrainingHook
from agop.errors import InputError, MissingExtraError, ModelError, warn
from agop.integrations.callback import State, TrainingCallback, state_for_this_rank
from agop.model.outputs import output_for
from agop.processes import gathered, rank_and_world_size

try:
    from transformers.trainer_callback import ExportableState, TrainerCallback
except ImportError as error:
    raise MissingExtraError("agop.integrations.transformers", "transformers") from error


class AGOPTrainerCallback(TrainingCallback, TrainerCallback, ExportableState):  # type: ignore[misc]  # no types there
    """Collect diag(M) over a Trainer's training batches. The training itself is unchanged, bit for bit.

    Every micro-batch is counted once, with the weights it is trained with. At the end the statistic is in `prior` and
    in the file `out`. The log gets `agop_count`, the samples counted by the first process. Checkpoints contain the
    statistic of every process, in trainer_state.json.

    A forward pre-hook on the model reads the batch. If the labels don't reach the model (label smoothing, a custom loss
    function) or the model is compiled, use AGOPTrainerCallback().attach(trainer) instead.

    Args:
        out: The AGOP file, by default agop.safetensors in the output folder.
        options: Those of `AGOPTrainingHook`: every, only_correct, per_class, snapshot_every, snapshot_dir, nan,
            patches, layer, rank, output, forward. Its steps are micro-batches.

    Raises:
        InputError: Invalid options.

    Example:
        >>> callback = AGOPTrainerCallback(per_class=True)
        >>> Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()  # then callback.prior
    """

    _not_trained = "no AGOP yet: call trainer.train with this callback"
    _no_batch = "no sample was counted: no batch was trained, are num_train_epochs or max_steps reached?"
    _counting: ClassVar[bool] = False  # one callback's gradient pass isn't a training batch for another's hook

    def __init__(self, out: str | os.PathLike[str] | None = None, **options: Any) -> None:
        if options.get("snapshot_dir") is not None:  # written to a checkpoint's JSON
            options["snapshot_dir"] = str(options["snapshot_dir"])
        super().__init__(out, **options)
        self._gathered: tuple[int, list[State]] = (0, [])
        self._batch: tuple[Any, Any] | None = None
        self._pre_hook: RemovableHandle | None = None
        self._attached = False

    @property
    def count(self) -> int:
        """Number of samples counted so far."""
        return 0 if self._hook is None else self._hook.count

    def attach(self, trainer: Any) -> AGOPTrainerCallback:
        """Add this callback to a trainer, and read each batch, with its labels, from its training_step."""
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
        """Start from zero, or from the checkpoint that the trainer resumes."""
        if args.n_gpu > 1 and not self._attached:
            raise InputError(
                f"{args.n_gpu} GPUs each get a part of a batch: use AGOPTrainerCallback().attach(trainer) instead"
            )
        if args.restore_callback_states_from_checkpoint:
            raise InputError(
                "restore_callback_states_from_checkpoint would replace this callback by another: leave it False, "
                "AGOPTrainerCallback resumes from a checkpoint itself"
            )
        self._drop_batch()
        self._forget_prior()
        self._gathered = (0, [])
        self._hook = AGOPTrainingHook(model, **self._options)
        if state.global_step:
            self._resume(state, self._hook)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Register a pre-hook that reads one training batch and removes itself, so an error leaves no hook behind."""
        if self._hook is None or self._attached:
            return
        self._drop_batch()
        self._pre_hook = self._hook.model.register_forward_pre_hook(self._read_batch, with_kwargs=True)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """Count a micro-batch and watch for the next."""
        self._count()
        self.on_step_begin()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Count the last micro-batch of a step, before the weights change."""
        self._count()

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Prepare for a checkpoint."""
        last = state.global_step >= state.max_steps
        due = last or (state.save_steps > 0 and state.global_step % state.save_steps == 0)
        self._before_checkpoint(state, due and args.save_strategy == "steps")

    def on_epoch_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Prepare for a checkpoint."""
        self._before_checkpoint(state, args.save_strategy == "epoch")

    def on_evaluate(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Prepare for a checkpoint."""
        self._before_checkpoint(state, args.save_strategy == "best")

    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, Any] | None = None, **___: Any) -> None:
        """Log the count beside the loss."""
        if logs is not None and self._hook is not None and not logs.keys().isdisjoint({"loss", "train_loss"}):
            logs["agop_count"] = state.log_history[-1]["agop_count"] = self.count

    def on_train_end(self, args: Any, state: Any, _: Any, **__: Any) -> None:
        """Merge all processes; the first one writes the file."""
        self._drop_batch()
        self._finish(self.out or Path(args.output_dir) / "agop.safetensors", state.is_world_process_zero)

    def state(self) -> dict[str, Any]:
        """State that the trainer writes to a checkpoint's trainer_state.json."""
        options = self._options | {"out": None if self.out is None else str(self.out)}
        if not isinstance(options.get("output", ""), str) or "forward" in options:  # functions aren't JSON
            explained = output_for(options.pop("output", "logit"), options.pop("forward", None))
            options["output"] = explained.name
        if self._hook is None:
            return {"args": options, "attributes": {"collected": None}}
        steps, states = self._gathered
        ranks = states if states and steps == self._hook.steps else [self._hook.state_dict()]
        buffer = io.BytesIO()
        torch.save({"ranks": ranks, "of": rank_and_world_size()[1]}, buffer)
        return {"args": options, "attributes": {"collected": b64encode(buffer.getvalue()).decode()}}

    def _before_checkpoint(self, state: Any, due: bool) -> None:
        """Gather the states of all ranks: the trainer asks only one of them for its state.

        Each rank derives `due` from the same arguments. A checkpoint that a signal or a callback requests on one rank
        would leave it waiting for the others, so it contains this rank's state alone.
        """
        if due and self._hook is not None:
            self._gathered = self._hook.steps, gathered(self._hook.state_dict())
        # With two such callbacks, the trainer would append their states to those of the previous checkpoint.
        name = type(self).__name__
        if isinstance(state.stateful_callbacks.get(name), list):
            state.stateful_callbacks[name] = []

    def _resume(self, state: Any, hook: AGOPTrainingHook) -> None:
        # If the checkpoint has no such callback, the trainer would fail at the next one.
        saved = state.stateful_callbacks.setdefault(type(self).__name__, [])
        if isinstance(saved, list):  # of several such callbacks: the one with the same options
            saved = next((each for each in reversed(saved) if each["args"] == self.state()["args"]), None)
        collected = saved and saved["attributes"].get("collected")
        if not collected:
            warn(f"the checkpoint has no AGOP: collecting starts at step {state.global_step}")
            return
        content = torch.load(io.BytesIO(b64decode(collected)), weights_only=True)
        if len(content["ranks"]) < content["of"]:
            warn(
                f"the checkpoint has the AGOP of only one of {content['of']} processes: it wasn't saved on the "
                "trainer's schedule"
            )
        hook.load_state_dict(state_for_this_rank(content["ranks"]))

    def _read_batch(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if AGOPTrainerCallback._counting:
            return
        self._drop_batch()
        if not (model.training and torch.is_grad_enabled()):
            return  # an evaluation, after an error had ended the training step before its forward pass
        self._batch = named.get(_images_name(model), inputs[0] if inputs else None), named.get("labels")

    def _drop_batch(self) -> None:
        self._batch = None
        if self._pre_hook is not None:
            self._pre_hook.remove()
            self._pre_hook = None

    def _count(self) -> None:
        batch, hook = self._batch, self._hook
        self._drop_batch()
        if hook is None:
            return
        images, labels = batch or (None, None)
        if images is None:
            raise ModelError(
                f"the model got no {_images_name(hook.model)} in this training step (is it compiled, or the step "
                "custom?): use AGOPTrainerCallback().attach(trainer)"
            )
        if labels is None and hook.needs_labels:
            raise InputError(
                "the labels didn't reach the model (label smoothing, or a custom loss function?): use "
                "AGOPTrainerCallback().attach(trainer), or only_correct=False"
            )
        AGOPTrainerCallback._counting = True
        try:
            with _without_autocast(hook.model):
                hook.step(images, labels)
        finally:
            AGOPTrainerCallback._counting = False


@contextmanager
def _without_autocast(model: nn.Module) -> Iterator[None]:
    """The model without the autocast that accelerate wraps around its forward for bf16=True and fp16=True.

    Reads `_original_forward`, private to accelerate, because it marks a model that accelerate has wrapped. The public
    `Accelerator.unwrap_model` can't wrap the model again, so the training would lose its mixed precision.
    """
    wrapped = vars(model).get("forward") if "_original_forward" in vars(model) else None
    if wrapped is None:
        yield
        return

    def is_own(forward: Any) -> bool:
        return getattr(forward, "__func__", forward) is type(model).forward

    # A second training wraps the model twice. Then _original_forward is wrapped as well.
    own = is_own(unwrap(wrapped, stop=is_own))
    model.forward = MethodType(type(model).forward, model) if own else model._original_forward  # type: ignore[assignment]
    try:
        yield
    finally:
        model.forward = wrapped


def _images_name(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "pixel_values"))
