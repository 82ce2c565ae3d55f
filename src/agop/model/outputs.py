"""Outputs of a model: logits, targets, labels and probabilities."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from agop.errors import InputError, ModelError, warn

Target = SupportsIndex | Sequence[int] | Tensor | None
# What gradients are of: the target's logit, or its log-odds against all other classes.
PREDICTED, CONTRAST = OUTPUTS = ("predicted", "contrast")
_FINAL = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid)
_LOGARITHM = "gradients are those of the log-probabilities; for gradients of logits, return the logits from forward()"
_LOGIT = "gradients are those of a logit computed from it, inexact near 0 and 1; return the logit from forward()"
_CONSEQUENCES = {"probabilities": _LOGARITHM, "log-probabilities": _LOGARITHM, "the probability of class 1": _LOGIT}
# Starts of the names of autograd nodes that don't change values.
_RESHAPING = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Slice", "Clone", "ToCopy")


def probabilities(logits: Tensor) -> Tensor:
    """Class probabilities (N,K) from logits (N,K). A single logit z counts as the logits (0, z)."""
    return (torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits).softmax(dim=1)


def logits_of(output: Any, samples: int) -> Tensor:
    """Logits (N,K), or (N,1) for a one-logit binary model, from a model's output: a tensor, tuple, dict or object."""
    logits = output
    if isinstance(getattr(output, "logits", None), Tensor):
        logits = output.logits
    elif isinstance(output, dict):
        logits = output.get("logits", next(iter(output.values())) if len(output) == 1 else None)
    elif isinstance(output, (tuple, list)) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        keys = f" with keys {list(output)}" if isinstance(output, dict) else ""
        raise ModelError(
            f"no logits in the model's output, a {type(output).__name__}{keys}: return a tensor (N,K), "
            "a tuple that starts with it, or a dict or object with 'logits'"
        )
    if samples == 1 and logits.ndim < 2:
        logits = logits.reshape(1, -1)  # squeeze() also removes a batch dimension of 1
    elif logits.ndim == 1 and len(logits) == samples:
        logits = logits[:, None]
    if logits.ndim < 2 or len(logits) != samples or math.prod(logits.shape[1:]) != logits.shape[1]:
        raise ModelError(
            f"the model returned logits of shape {tuple(logits.shape)} for {samples} images: "
            f"a classifier returns ({samples}, classes)"
        )
    return logits.flatten(1)


def class_count(logits: Tensor) -> int:
    """Number of classes: a single logit means two."""
    return max(2, logits.shape[1])


def predicted(logits: Tensor) -> Tensor:
    """Predicted classes (N,)."""
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).long()
    return logits.argmax(dim=1)


def selection(logits: Tensor, targets: Tensor, output: str = PREDICTED) -> Tensor:
    """Derivatives (N,K) of each sample's output with respect to its logits: 1 at the target for its logit.

    The contrast is f_c − log Σ_{j≠c} exp f_j, so that its derivatives sum to 0. A single logit z counts as −z for class
    0, and is its own contrast.
    """
    if logits.shape[1] == 1:
        return (2 * targets - 1)[:, None].to(logits.dtype)
    chosen = torch.zeros_like(logits).scatter_(1, targets[:, None], 1)
    if output == PREDICTED:
        return chosen
    return chosen - logits.masked_fill(chosen.bool(), -torch.inf).softmax(dim=1)


def check_output(output: Any) -> None:
    """Raise unless the output is one that has gradients."""
    if output not in OUTPUTS:
        raise InputError(f"output is {output!r}: give {' or '.join(map(repr, OUTPUTS))}")


def target_indices(target: Target, samples: int) -> Tensor | None:
    """Targets (N,) as int64, from one class for all samples or one per sample. None stays None (predicted class)."""
    if target is None:
        return None
    classes = _class_indices(target, "target")
    if classes.ndim == 0:
        classes = classes.expand(samples)
    if classes.shape != (samples,):
        raise InputError(
            f"target has shape {tuple(classes.shape)} for {samples} images: give one class, or one per image"
        )
    return classes


def labels_for(labels: Any, samples: int) -> Tensor:
    """Labels (N,) as int64. Accepts (N,1) and integer-valued floats, as binary losses take them."""
    classes = _class_indices(labels, "labels")
    if classes.shape == (samples, 1):
        classes = classes[:, 0]
    if classes.shape != (samples,):
        raise InputError(
            f"labels have shape {tuple(classes.shape)} for {samples} images: give one class index per "
            "image (for one-hot or mixed labels, labels.argmax(1))"
        )
    return classes


def check_range(classes: Tensor, count: int, what: str) -> None:
    """Raise unless every class lies in 0 .. count-1."""
    wrong = (classes < 0) | (classes >= count)
    if bool(wrong.any()):
        sample = int(wrong.nonzero()[0])
        raise InputError(
            f"{what} {int(classes[sample])} of sample {sample} is out of range: "
            f"the model has {count} classes, 0 to {count - 1}"
        )


def _class_indices(values: Any, what: str) -> Tensor:
    try:
        classes = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} {values!r} can't be converted to class indices: {error}") from error
    if classes.dtype == torch.bool or classes.is_complex():
        raise InputError(f"{what} has dtype {classes.dtype}: give class indices as integers")
    if classes.is_floating_point() and not bool((classes == classes.floor()).all()):
        raise InputError(f"{what} contains fractions or NaN, which aren't class indices: give integers")
    return classes.detach().long()


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
