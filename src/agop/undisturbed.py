"""A model in eval mode with frozen parameters, for a while, and then exactly as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from numpy.random import MT19937, mtrand
from torch import Tensor, nn

_SPARE = MT19937(0)


class Parts:
    """The modules, parameters and buffers of a model, from one walk over it."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.parameters = [p for m in self.modules for p in m._parameters.values() if p is not None]
        self.buffers = [(m, name, b) for m in self.modules for name, b in m._buffers.items() if b is not None]


@contextmanager
def undisturbed(parts: Parts) -> Iterator[None]:
    """Gradients with respect to the input can be taken inside; nothing of it is left afterwards.

    Flags are set one module at a time, not with model.eval(): a model may override train() to do
    more than set flags, and only the flags can be put back exactly.
    """
    in_training = [module for module in parts.modules if module.training]
    trainable = [p for p in parts.parameters if p.requires_grad and p.is_leaf]
    copies = [buffer.detach().clone() for _, _, buffer in parts.buffers]
    try:
        for module in in_training:
            module.training = False
        for parameter in trainable:
            parameter.requires_grad_(False)
        # Entering a mode that is on already would cost as much as a layer of a small network.
        ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        graph = nullcontext() if torch.is_grad_enabled() else torch.enable_grad()
        with _random_state(parts.parameters), ordinary, graph:
            yield
    finally:
        for module in in_training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)
        _restore_buffers(parts, copies)


def _restore_buffers(parts: Parts, copies: list[Tensor]) -> None:
    """Put back what a forward pass replaced or wrote; leave the untouched ones untouched."""
    for (module, name, buffer), copy in zip(parts.buffers, copies, strict=True):
        if module._buffers.get(name) is not buffer:
            module._buffers[name] = buffer
        if not torch.equal(buffer, copy):
            with torch.inference_mode(buffer.is_inference()):
                buffer.detach().copy_(copy)


@contextmanager
def _random_state(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Keep the random state of Python, NumPy, torch and the model's devices."""
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    accelerators = [(d, torch.get_device_module(d).get_rng_state(d)) for d in devices]
    python, cpu, numpy = random.getstate(), torch.get_rng_state(), mtrand.get_bit_generator()
    # NumPy's generator is exchanged for a while: reading and writing its state takes far longer.
    mtrand.set_bit_generator(_SPARE)
    try:
        yield
    finally:
        mtrand.set_bit_generator(numpy)
        random.setstate(python)
        torch.set_rng_state(cpu)
        for device, state in accelerators:
            torch.get_device_module(device).set_rng_state(state, device)
