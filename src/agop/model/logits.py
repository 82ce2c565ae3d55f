"""Logits of a classifier: found in what it returns, also before a final softmax."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import ModelError, warn

_FINAL = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid)
_LOGARITHM = "gradients are those of the log-probabilities; for gradients of logits, return the logits from forward()"
_LOGIT = "gradients are those of a logit computed from it, inexact near 0 and 1; return the logit from forward()"
_CONSEQUENCES = {"probabilities": _LOGARITHM, "log-probabilities": _LOGARITHM, "the probability of class 1": _LOGIT}
# Starts of the names of autograd nodes that don't change values.
_RESHAPING = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Slice", "Clone", "ToCopy")


def tensor_in(returned: Any, *names: str) -> Tensor | None:
    """The tensor in what a model returns: under one of the names, the only one of a dict, or the first of a tuple."""
    for name in names:
        value = returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)
        if isinstance(value, Tensor):
            return value
    if isinstance(returned, Mapping):
        returned = next(iter(returned.values())) if len(returned) == 1 else None
    elif isinstance(returned, (tuple, list)) and returned:
        returned = returned[0]
    return returned if isinstance(returned, Tensor) else None


def described(returned: Any) -> str:
    """What a model returns, for an error message, and an example of an output= for it."""
    is_dict = isinstance(returned, Mapping)
    parts = dict(returned) if is_dict else getattr(returned, "__dict__", {})
    keys = f" with {'keys' if is_dict else 'attributes'} {list(parts)}" if parts else ""
    name = next((name for name, value in parts.items() if isinstance(value, Tensor)), None)
    place = "[0]" if name is None else f"[{name!r}]" if is_dict else f".{name}"
    example = f"output=lambda returned: returned{place}.flatten(1).mean(dim=1)"
    return f"a {type(returned).__name__}{keys}: pass what to explain as one number per image, for example {example}"


def logits_of(returned: Any, samples: int) -> Tensor:
    """Logits (N,K), or (N,1) for a one-logit binary model, from a tensor, tuple, dict or object."""
    logits = tensor_in(returned, "logits")
    if logits is None:
        raise ModelError(
            f"no logits in the model's output, {described(returned)}; a classifier returns a tensor (N,K), a tuple "
            "that starts with it, or a dict or object with 'logits'"
        )
    if samples == 1 and logits.ndim < 2:
        logits = logits.reshape(1, -1)  # squeeze() also removes a batch dimension of 1
    elif logits.ndim == 1 and len(logits) == samples:
        logits = logits[:, None]
    if logits.ndim < 2 or len(logits) != samples or math.prod(logits.shape[1:]) != logits.shape[1]:
        hint = "; for another model pass output=, for example output=agop.outputs."
        example = {3: "detection()", 4: "segment(class_index=0)", 5: "segment(class_index=0)"}.get(logits.ndim)
        place = f" in a dict with keys {list(returned)}" if isinstance(returned, Mapping) else ""
        raise ModelError(
            f"the model returned logits of shape {tuple(logits.shape)}{place} for {samples} images: "
            f"a classifier returns ({samples}, classes)" + (hint + example if example else "")
        )
    return logits.flatten(1)


class LogitSource:
    """Turns what a model returns into logits (N,K). The first outputs without NaN decide how."""

    def __init__(self, modules: Sequence[nn.Module], bypasses: ExitStack) -> None:
        self._final = [module for module in modules if isinstance(module, _FINAL)]
        self._bypasses = bypasses
        self._decided, self._kind = False, ""

    def logits(self, images: Tensor, run: Callable[[Tensor], Any]) -> Tensor:
        """Logits (N,K) of the images. `run` gives what the model returns for images."""
        if self._decided:
            return self.read(logits_of(run(images), len(images)))
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        with ExitStack() as handles:
            for module in self._final:
                handle = module.register_forward_hook(lambda m, inputs, output: calls.append((m, inputs[0], output)))
                handles.callback(handle.remove)
            outputs = logits_of(run(images), len(images))
        valid = ~outputs.detach().isnan().any(dim=1)
        if not bool(valid.any()):
            return outputs
        self._decided = True
        kind = _kind(outputs.detach()[valid])
        for called, inputs, result in calls:
            # The module that computed the outputs, if it's called just once, is bypassed in later passes.
            once = sum(other is called for other, _, _ in calls) == 1
            last = result.data_ptr() == outputs.data_ptr() and result.numel() == outputs.numel()
            binary = isinstance(called, nn.Sigmoid) and outputs.shape[1] == 1
            if once and last and (binary or (kind and not isinstance(called, nn.Sigmoid))):
                self._bypasses.callback(called.register_forward_hook(_input_of).remove)
                return inputs.reshape(outputs.shape)
        if kind:
            # Logits may look like probabilities by chance, but not those of noise as well.
            noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)).to(images).requires_grad_()
            with torch.enable_grad():
                others = logits_of(run(noise), len(images))
            if _kind(others.detach()) == kind and (others.shape[1] > 1 or _is_from_sigmoid(others)):
                warn(f"the model returns {kind}: {_CONSEQUENCES[kind]}")
                self._kind = kind
            # The last pass is that of the images: a caller's hooks keep its outputs.
            outputs = logits_of(run(images), len(images))
        return self.read(outputs)

    def read(self, outputs: Tensor) -> Tensor:
        """Logits (N,K) from outputs (N,K), as decided."""
        if self._kind == "probabilities":
            return _logarithm(outputs)
        return _logarithm(outputs) - _logarithm(1 - outputs) if self._kind == "the probability of class 1" else outputs


def is_bypassed(module: nn.Module) -> bool:
    """True for a module, or its copy, that returns its input while the model is probed."""
    return _input_of in module._forward_hooks.values()  # private: torch has no public way to ask for hooks


def _input_of(_: nn.Module, inputs: Any, __: Any) -> Tensor:
    return inputs[0]  # type: ignore[no-any-return]


def _logarithm(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def _kind(outputs: Tensor) -> str:
    """What the outputs (N,K) look like, a key of _CONSEQUENCES, or "" for logits."""
    if not outputs.is_floating_point():
        return ""
    if outputs.shape[1] == 1:
        return "the probability of class 1" if bool(((outputs >= 0) & (outputs <= 1)).all()) else ""
    tolerance = min(100 * torch.finfo(outputs.dtype).eps, 0.02)  # float16 sums are rounded
    for kind, sign, values in (("probabilities", 1, outputs), ("log-probabilities", -1, outputs.exp())):
        sums = values.float().sum(dim=1)
        if bool((sign * outputs >= 0).all()) and bool(((sums - 1).abs() <= tolerance).all()):
            return kind
    return ""


def _is_from_sigmoid(outputs: Tensor) -> bool:
    """True if a sigmoid computed the outputs, with a graph. A logit may lie between 0 and 1 for every image, too."""
    node = outputs.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("Sigmoid")
