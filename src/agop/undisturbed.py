"""A model in eval mode with frozen parameters, for a while, and then exactly as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Gradients with respect to the input can be taken inside; nothing of it is left afterwards.

    Flags are set one module at a time, not with model.eval(): a model may override train() to do
    more than set flags, and only the flags can be put back exactly.
    """
    modules = list(model.modules())
    flags = [module.training for module in modules]
    trainable = [p for p in model.parameters() if p.requires_grad and p.is_leaf]
    buffers = _saved_buffers(modules)
    with _random_state(model), torch.inference_mode(False), torch.enable_grad():
        try:
            for module in modules:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            yield
        finally:
            for module, flag in zip(modules, flags, strict=True):
                module.training = flag
            for parameter in trainable:
                parameter.requires_grad_(True)
            _restore_buffers(buffers)


Saved = tuple[nn.Module, str, Tensor | None, Tensor | None]


def _saved_buffers(modules: list[nn.Module]) -> list[Saved]:
    return [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
    ]


def _restore_buffers(buffers: list[Saved]) -> None:
    """Put back what a forward pass replaced or wrote; leave the untouched ones untouched."""
    for module, name, buffer, copy in buffers:
        if module._buffers.get(name) is not buffer:
            module._buffers[name] = buffer
        if buffer is not None and copy is not None and not torch.equal(buffer, copy):
            with torch.inference_mode(buffer.is_inference()):
                buffer.detach().copy_(copy)


@contextmanager
def _random_state(model: nn.Module) -> Iterator[None]:
    """Put back the random state of Python, NumPy, torch and the model's devices."""
    devices = {p.device for p in model.parameters() if p.device.type not in ("cpu", "meta")}
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    accelerators = [(d, torch.get_device_module(d).get_rng_state(d)) for d in devices]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        for device, state in accelerators:
            torch.get_device_module(device).set_rng_state(state, device)
