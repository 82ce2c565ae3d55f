"""Which class a sample is explained for, and which samples count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError, ModelError

Target = int | Sequence[int] | Tensor | None


def probabilities(logits: Tensor) -> Tensor:
    """Probabilities (N,K) of the classes from logits (N,K); one logit z stands for z against 0."""
    return (torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits).softmax(dim=1)


def logits_of(output: Any, samples: int) -> Tensor:
    """Logits (N,K), or (N,1) for a one-logit binary model, from whatever a model returns."""
    found = output
    if isinstance(getattr(output, "logits", None), Tensor):
        found = output.logits
    elif isinstance(output, dict):
        found = output.get("logits", next(iter(output.values())) if len(output) == 1 else None)
    elif isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        keys = f" with keys {list(output)}" if isinstance(output, dict) else ""
        raise ModelError(
            f"no logits in the model's output, a {type(output).__name__}{keys}: return a tensor (N,K), "
            "a tuple that starts with it, or something with 'logits'"
        )
    if samples == 1 and found.ndim < 2:
        found = found.reshape(1, -1)  # squeeze() takes a batch of one away, too
    elif found.ndim == 1 and len(found) == samples:
        found = found[:, None]
    if found.ndim < 2 or len(found) != samples or math.prod(found.shape[1:]) != found.shape[1]:
        raise ModelError(
            f"the model gave logits of shape {tuple(found.shape)} for {samples} images: "
            f"a classifier gives ({samples}, classes)"
        )
    return found.flatten(1)


def class_count(logits: Tensor) -> int:
    """Number of classes: one logit stands for two."""
    return max(2, logits.shape[1])


def predicted(logits: Tensor) -> Tensor:
    """The class (N,) each sample is predicted to be."""
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).long()
    return logits.argmax(dim=1)


def selection(logits: Tensor, targets: Tensor) -> Tensor:
    """(N,K): 1 at each sample's target, so that Σ selection · logits sums the targets' logits.

    A single logit z speaks as −z for class 0.
    """
    if logits.shape[1] == 1:
        return (2 * targets - 1)[:, None].to(logits.dtype)
    return torch.zeros_like(logits).scatter_(1, targets[:, None], 1)


def target_indices(target: Target, samples: int) -> Tensor | None:
    """Targets (N,) as int64 from one class for all or one a sample; None stays None (predicted)."""
    if target is None:
        return None
    classes = _class_indices(target, "target")
    if classes.ndim == 0:
        classes = classes.expand(samples)
    if classes.shape != (samples,):
        raise InputError(
            f"target has shape {tuple(classes.shape)} for {samples} images: give one class, or one class an image"
        )
    return classes


def labels_for(labels: Any, samples: int) -> Tensor:
    """Labels (N,) as int64; (N,1) and whole floats, as binary losses want them, are fine."""
    classes = _class_indices(labels, "labels")
    if classes.shape == (samples, 1):
        classes = classes[:, 0]
    if classes.shape != (samples,):
        raise InputError(
            f"labels have shape {tuple(classes.shape)} for {samples} images: give one class index an "
            "image (for one-hot or mixed labels, labels.argmax(1))"
        )
    return classes


def check_range(classes: Tensor, count: int, what: str) -> None:
    """Raise unless every class lies in 0 .. count-1."""
    wrong = ((classes < 0) | (classes >= count)).nonzero()
    if len(wrong):
        sample = int(wrong[0])
        raise InputError(
            f"{what} {int(classes[sample])} of sample {sample} is out of range: "
            f"the model has {count} classes, 0 to {count - 1}"
        )


def _class_indices(values: Any, what: str) -> Tensor:
    try:
        classes = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} {values!r} cannot be read as class indices: {error}") from error
    if classes.dtype == torch.bool or classes.is_complex():
        raise InputError(f"{what} of dtype {classes.dtype}: give class indices as integers")
    if classes.is_floating_point() and not bool((classes == classes.floor()).all()):
        raise InputError(f"{what} hold fractions or NaN, which are not class indices: give integers")
    return classes.detach().long()
