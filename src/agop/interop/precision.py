"""Gradients in the weights' precision, within a training that accelerate runs in mixed precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

from torch import nn


@contextmanager
def without_autocast(model: nn.Module) -> Iterator[None]:
    """The model without the autocast that accelerate wraps around its forward for bf16=True and fp16=True.

    Reads `_original_forward`, private to accelerate, because it marks a model that accelerate has wrapped. The public
    `Accelerator.unwrap_model` can't wrap the model again, so the training would lose its mixed precision.
    """
    wrapped = vars(model).get("forward") if "_original_forward" in vars(model) else None
    if wrapped is None:
        yield
        return
    own, forward = type(model).forward, wrapped
    # A second training wraps the model twice. Then _original_forward is wrapped as well.
    while getattr(forward, "__func__", forward) is not own and hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    is_own = getattr(forward, "__func__", forward) is own
    model.forward = MethodType(own, model) if is_own else model._original_forward  # type: ignore[assignment]
    try:
        yield
    finally:
        model.forward = wrapped
