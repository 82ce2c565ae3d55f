"""How Captum is called: what it may be told, where its randomness starts, and its errors in one line."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from captum import attr

from agop.errors import AGOPError, AGOPWarning, ModelError

# What `explain` decides, and what would change the form of the answer.
_OURS = {
    "self", "forward_func", "model", "layer", "inputs", "target", "additional_forward_args", "return_convergence_delta",
    "return_input_shape", "kwargs",
}  # fmt: skip


def parameters(attribution: str, function: str) -> list[str]:
    """What a user may tell an attribution's `__init__` or `attribute`."""
    signature = inspect.signature(getattr(getattr(attr, attribution), function))
    return [name for name in signature.parameters if name not in _OURS]


def takes(attribution: str, function: str, parameter: str) -> bool:
    """True if an attribution's `__init__` or `attribute` has a parameter of that name."""
    return parameter in inspect.signature(getattr(getattr(attr, attribution), function)).parameters


def seed_all(seed: int) -> None:
    """Start every generator that Captum draws from; whoever holds the model still keeps their state."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def errors_in_our_words(name: str) -> Iterator[None]:
    """What Captum raises, as a ModelError that says so."""
    try:
        yield
    except (AGOPError, AGOPWarning, torch.OutOfMemoryError):
        raise
    except Exception as error:  # Captum asserts, and raises what a model's layers raise
        told = f"{type(error).__name__}: {error}"
        raise ModelError(f"{name} does not work with this model or these options; Captum said: {told}") from error
