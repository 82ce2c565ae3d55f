"""Logits of models that return probabilities: the input of a final softmax module, else the logarithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import warn

# A module with its input and its output.
Call = tuple[nn.Module, Tensor, Tensor]
_FINAL = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid)
_LOGARITHM = "gradients are those of the log-probabilities; for gradients of logits, return the logits from forward()"
_LOGIT = "gradients are those of a logit computed from it, inexact near 0 and 1; return the logit from forward()"
_CONSEQUENCES = {"probabilities": _LOGARITHM, "log-probabilities": _LOGARITHM, "the probability of class 1": _LOGIT}
# Starts of the names of autograd nodes that don't change values.
_RESHAPING = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Slice", "Clone", "ToCopy")


class LogitSource:
    """Turns a model's outputs (N,K) into logits. The first outputs without NaN decide how."""

    def __init__(self, modules: Sequence[nn.Module], bypasses: ExitStack) -> None:
        self._final = [module for module in modules if isinstance(module, _FINAL)]
        self._bypasses = bypasses
        self._decided, self._kind = False, ""

    def run(self, model: nn.Module, images: Tensor) -> tuple[Any, list[Call]]:
        """Output of the model, and until it's decided the calls of its softmax modules."""
        calls: list[Call] = []
        if self._decided:
            return model(images), calls
        with ExitStack() as handles:
            for module in self._final:
                handle = module.register_forward_hook(lambda m, inputs, output: calls.append((m, inputs[0], output)))
                handles.callback(handle.remove)
            return model(images), calls

    def logits(self, images: Tensor, outputs_of: Callable[[Tensor], tuple[Tensor, list[Call]]]) -> Tensor:
        """Logits (N,K) of the images. `outputs_of` gives outputs (N,K) and calls from `run`."""
        outputs, calls = outputs_of(images)
        valid = None if self._decided else ~outputs.detach().isnan().any(dim=1)
        if valid is None or not bool(valid.any()):
            return self.read(outputs)
        self._decided = True
        kind = _kind(outputs.detach()[valid])
        bypassed = self._bypassed(outputs, calls, kind)
        if bypassed is not None:
            return bypassed
        if kind:
            # Logits may look like probabilities by chance, but not those of noise as well.
            with torch.enable_grad():
                confirmed = _confirmed(kind, outputs_of(_noise_like(images).requires_grad_())[0])
            if confirmed:
                warn(f"the model returns {kind}: {_CONSEQUENCES[kind]}")
                self._kind = kind
            outputs, _ = outputs_of(images)  # the last pass is that of the images: a caller's hooks keep its outputs
        return self.read(outputs)

    def read(self, outputs: Tensor) -> Tensor:
        """Logits (N,K) from outputs (N,K), as decided."""
        if self._kind == "probabilities":
            return _logarithm(outputs)
        return _logarithm(outputs) - _logarithm(1 - outputs) if self._kind == "the probability of class 1" else outputs

    def _bypassed(self, outputs: Tensor, calls: Sequence[Call], kind: str) -> Tensor | None:
        """Input of the module that computed the outputs, if it's called just once. Bypasses it in later passes."""
        for module, inputs, result in calls:
            once = sum(other is module for other, _, _ in calls) == 1
            last = result.data_ptr() == outputs.data_ptr() and result.numel() == outputs.numel()
            binary = isinstance(module, nn.Sigmoid) and outputs.shape[1] == 1
            if once and last and (binary or (kind and not isinstance(module, nn.Sigmoid))):
                self._bypasses.callback(module.register_forward_hook(_input_of).remove)
                return inputs.reshape(outputs.shape)
        return None


def is_bypassed(module: nn.Module) -> bool:
    """True for a module, or its copy, that returns its input while the model is probed."""
    return _input_of in module._forward_hooks.values()  # private: torch has no public way to ask for hooks


def _input_of(_: nn.Module, inputs: Any, __: Any) -> Tensor:
    return inputs[0]  # type: ignore[no-any-return]


def _logarithm(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def _noise_like(images: Tensor) -> Tensor:
    """Uniform noise in 0..1, always the same, of the images' shape, device and dtype."""
    return torch.rand(images.shape, generator=torch.Generator().manual_seed(0)).to(images)


def _kind(outputs: Tensor) -> str:
    """What the outputs (N,K) look like, a key of _CONSEQUENCES, or "" for logits."""
    if not outputs.is_floating_point():
        return ""
    if outputs.shape[1] == 1:
        return "the probability of class 1" if bool(((outputs >= 0) & (outputs <= 1)).all()) else ""
    tolerance = min(100 * torch.finfo(outputs.dtype).eps, 0.02)  # float16 sums are rounded
    if bool((outputs >= 0).all()) and _sums_to_one(outputs, tolerance):
        return "probabilities"
    if bool((outputs <= 0).all()) and _sums_to_one(outputs.exp(), tolerance):
        return "log-probabilities"
    return ""


def _sums_to_one(values: Tensor, tolerance: float) -> bool:
    return bool(((values.float().sum(dim=1) - 1).abs() <= tolerance).all())


def _confirmed(kind: str, outputs: Tensor) -> bool:
    """True if other outputs, with a graph, are of the same kind. One output must come from a sigmoid: a logit may lie
    between 0 and 1 for every image.
    """
    return _kind(outputs.detach()) == kind and (outputs.shape[1] > 1 or _from_sigmoid(outputs))


def _from_sigmoid(outputs: Tensor) -> bool:
    node = outputs.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("Sigmoid")
