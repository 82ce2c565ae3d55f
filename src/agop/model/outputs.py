"""Logits of models that return probabilities: the input of a final softmax module, else the logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import warn

# A module with its input and its output.
Call = tuple[nn.Module, Tensor, Tensor]
_FINAL = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid)
_FIX = "gradients are those of the log-probabilities; for gradients of logits, return the logits from forward()"


class LogitSource:
    """Turns a model's outputs (N,K) into logits. The first outputs decide how."""

    def __init__(self, modules: Sequence[nn.Module], bypasses: ExitStack) -> None:
        self._final = [module for module in modules if isinstance(module, _FINAL)]
        self._bypasses = bypasses
        self._first, self._take_logarithm = True, False

    def run(self, model: nn.Module, images: Tensor) -> tuple[Any, list[Call]]:
        """Output of the model, and in the first pass the calls of its softmax modules."""
        calls: list[Call] = []
        if not self._first:
            return model(images), calls
        with ExitStack() as handles:
            for module in self._final:
                handle = module.register_forward_hook(lambda m, inputs, output: calls.append((m, inputs[0], output)))
                handles.callback(handle.remove)
            return model(images), calls

    def logits(self, outputs: Tensor, calls: Sequence[Call]) -> Tensor:
        """Logits (N,K) from outputs (N,K)."""
        if self._first:
            self._first = False
            kind = _kind(outputs.detach())
            bypassed = self._bypassed(outputs, calls, kind)
            if bypassed is not None:
                return bypassed
            if kind is not None:
                warn(f"the model returns {kind}: {_FIX}")
            self._take_logarithm = kind == "probabilities"
        return outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log() if self._take_logarithm else outputs

    def _bypassed(self, outputs: Tensor, calls: Sequence[Call], kind: str | None) -> Tensor | None:
        """Input of the module that computed the outputs, if it's called just once. Bypasses it in later passes."""
        for module, inputs, result in calls:
            once = sum(other is module for other, _, _ in calls) == 1
            last = result.data_ptr() == outputs.data_ptr() and result.numel() == outputs.numel()
            binary = isinstance(module, nn.Sigmoid) and outputs.shape[1] == 1
            if once and last and (binary or (kind is not None and not isinstance(module, nn.Sigmoid))):
                self._bypasses.callback(module.register_forward_hook(_input_of).remove)
                return inputs.reshape(outputs.shape)
        return None


def _input_of(_: nn.Module, inputs: Any, __: Any) -> Tensor:
    return inputs[0]  # type: ignore[no-any-return]


def _kind(outputs: Tensor) -> str | None:
    """What the outputs (N,K) are, if every row sums to 1: "probabilities", or "log-probabilities"."""
    if outputs.shape[1] < 2 or not outputs.is_floating_point():
        return None
    tolerance = min(100 * torch.finfo(outputs.dtype).eps, 0.02)  # float16 sums are rounded
    if bool((outputs >= 0).all()) and _sums_to_one(outputs, tolerance):
        return "probabilities"
    if bool((outputs <= 0).all()) and _sums_to_one(outputs.exp(), tolerance):
        return "log-probabilities"
    return None


def _sums_to_one(values: Tensor, tolerance: float) -> bool:
    return bool(((values.float().sum(dim=1) - 1).abs() <= tolerance).all())
