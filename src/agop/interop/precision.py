"""The precision of gradients inside a training that accelerate runs in another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

from torch import nn


@contextmanager
def precision_of_the_weights(model: nn.Module) -> Iterator[None]:
    """The model without the autocast that accelerate wraps its forward in for bf16=True and fp16=True.

    The only place that reads an attribute private to accelerate, `_original_forward`: it marks a model that accelerate
    has wrapped. The public `Accelerator.unwrap_model` can't wrap the model again, so the training would lose its
    precision.
    """
    wrapped = model.__dict__.get("forward") if "_original_forward" in model.__dict__ else None
    if wrapped is None:
        yield
        return
    own, plain = type(model).forward, wrapped
    # A second training wraps it a second time, and then the _original_forward is a wrapped one, too.
    while getattr(plain, "__func__", plain) is not own and hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    found = getattr(plain, "__func__", plain) is own
    model.forward = MethodType(own, model) if found else model._original_forward  # type: ignore[assignment]
    try:
        yield
    finally:
        model.forward = wrapped
