"""A model in eval mode with frozen parameters, for a while, and then exactly as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from numpy.random import MT19937, mtrand
from torch import Tensor, nn

_SPARE = MT19937(0)


class Parts:
    """The modules, parameters and buffers of a model, from one walk over it."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.parameters = [p for m in self.modules for p in m._parameters.values() if p is not None]
        self.buffers = [b for m in self.modules for b in m._buffers.values() if b is not None]


@contextmanager
def undisturbed(parts: Parts) -> Iterator[None]:
    """Gradients with respect to the input can be taken inside; nothing of it is left afterwards.

    Flags are set one module at a time, not with model.eval(): a model may override train() to do
    more than set flags, and only the flags can be put back exactly.
    """
    in_training = [module for module in parts.modules if module.training]
    trainable = [p for p in parts.parameters if p.requires_grad and p.is_leaf]
    owned = [_owned(module) for module in parts.modules]
    copies = [buffer.detach().clone() for buffer in parts.buffers]
    try:
        for module in in_training:
            module.training = False
        for parameter in trainable:
            parameter.requires_grad_(False)
        # Entering a mode that is on already would cost as much as a layer of a small network.
        ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        graph = nullcontext() if torch.is_grad_enabled() else torch.enable_grad()
        with preserved_random_state(parts.parameters), ordinary, graph:
            yield
    finally:
        for module in in_training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module, before in zip(parts.modules, owned, strict=True):
            _put_back_owned(module, before)
        for buffer, copy in zip(parts.buffers, copies, strict=True):
            _put_back_values(buffer, copy)


Owned = tuple[dict[str, Any], dict[str, Any]] | None


def _owned(module: nn.Module) -> Owned:
    """Which parameters and buffers a module has; a compiled module's cannot be exchanged."""
    if isinstance(module, torch.jit.ScriptModule) or not (module._parameters or module._buffers):
        return None
    return dict(module._parameters), dict(module._buffers)


def _put_back_owned(module: nn.Module, before: Owned) -> None:
    """Undo what a forward pass exchanged, added or filled in."""
    if before is None:
        return
    kinds: tuple[dict[str, Any], dict[str, Any]] = (module._parameters, module._buffers)
    for there, was in zip(kinds, before, strict=True):
        if there.keys() != was.keys() or any(there[name] is not value for name, value in was.items()):
            there.clear()
            there.update(was)


def _put_back_values(buffer: Tensor, copy: Tensor) -> None:
    """Undo what a forward pass wrote; a buffer that was not written to is left untouched."""
    if buffer.layout != torch.strided or buffer.is_meta or _same(buffer, copy):
        return
    with torch.inference_mode(buffer.is_inference()):
        if buffer.shape == copy.shape:
            buffer.detach().copy_(copy)
        else:
            buffer.data = copy


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal, NaN for NaN."""
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@contextmanager
def preserved_random_state(parameters: Sequence[Tensor] = ()) -> Iterator[None]:
    """Keep the random state of Python, NumPy, torch and the parameters' devices."""
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    accelerators = [(d, torch.get_device_module(d).get_rng_state(d)) for d in devices]
    python, cpu = random.getstate(), torch.get_rng_state()
    numpy, generator = mtrand.get_state(legacy=False), mtrand.get_bit_generator()
    # NumPy's generator is exchanged for a while: writing its state back would take longer. That drops the
    # second of a pair of normal numbers, if one is waiting.
    mtrand.set_bit_generator(_SPARE)
    try:
        yield
    finally:
        mtrand.set_bit_generator(generator)
        if numpy["has_gauss"]:
            mtrand.set_state(numpy)
        random.setstate(python)
        torch.set_rng_state(cpu)
        for device, state in accelerators:
            torch.get_device_module(device).set_rng_state(state, device)
