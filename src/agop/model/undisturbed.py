"""Puts a model into eval mode with frozen parameters for a while, and restores it exactly."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from numpy.random import MT19937, mtrand
from torch import Tensor, nn

Table = dict[str, Any]
_SPARE = MT19937(0)


class Parts:
    """The modules, parameters and buffers of a model, collected in one pass over it."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        tables = [_tables(module) for module in self.modules]
        self.parameters = [p for parameters, _ in tables for p in parameters.values() if p is not None]
        self.buffers = [b for _, buffers in tables for b in buffers.values() if b is not None]


@contextmanager
def undisturbed(parts: Parts) -> Iterator[None]:
    """Inside, the model is ready for input gradients. Afterwards its modes, flags, buffers and the random state are
    restored.

    Modes are set module by module, not with model.eval(): a model may override train() to do more than set flags, and
    only flags can be restored exactly.
    """
    in_training = [module for module in parts.modules if module.training]
    trainable = [p for p in parts.parameters if p.requires_grad and p.is_leaf]
    saved_tables = [_copy_tables(module) for module in parts.modules]
    copies = [buffer.detach().clone() for buffer in parts.buffers]
    try:
        for module in in_training:
            module.training = False
        for parameter in trainable:
            parameter.requires_grad_(False)
        # Entering a mode that is already on would cost as much as a layer of a small network.
        ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        graph = nullcontext() if torch.is_grad_enabled() else torch.enable_grad()
        with preserved_random_state(parts.parameters), ordinary, graph, _without_autocast(parts.parameters):
            yield
    finally:
        for module in in_training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module, saved in zip(parts.modules, saved_tables, strict=True):
            _restore_tables(module, saved)
        for buffer, copy in zip(parts.buffers, copies, strict=True):
            _restore_values(buffer, copy)


@contextmanager
def _without_autocast(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Switch the caller's autocast off: in float16 small gradients vanish."""
    with ExitStack() as stack:
        for kind in {"cpu", *(parameter.device.type for parameter in parameters)} - {"meta"}:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _tables(module: nn.Module) -> tuple[Table, Table]:
    """A module's own parameters and buffers by name.

    These are private in torch, but its public iterators skip entries that are None and can't exchange or remove one.
    """
    return module._parameters, module._buffers


def _copy_tables(module: nn.Module) -> tuple[Table, Table] | None:
    """Copies of both tables. None for an empty module, and for TorchScript, whose entries can't be exchanged."""
    parameters, buffers = _tables(module)
    if isinstance(module, torch.jit.ScriptModule) or not (parameters or buffers):
        return None
    return dict(parameters), dict(buffers)


def _restore_tables(module: nn.Module, saved: tuple[Table, Table] | None) -> None:
    """Undo entries that a forward pass exchanged, added or filled in."""
    if saved is None:
        return
    for table, before in zip(_tables(module), saved, strict=True):
        if table.keys() != before.keys() or any(table[name] is not value for name, value in before.items()):
            table.clear()
            table.update(before)


def _restore_values(buffer: Tensor, copy: Tensor) -> None:
    """Undo values that a forward pass wrote. An unchanged buffer isn't written to."""
    if buffer.layout != torch.strided or buffer.is_meta or _equal(buffer, copy):
        return
    with torch.inference_mode(buffer.is_inference()):
        if buffer.shape == copy.shape:
            buffer.detach().copy_(copy)
        else:
            buffer.data = copy


def _equal(a: Tensor, b: Tensor) -> bool:
    """True if all values are equal, where NaN equals NaN."""
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@contextmanager
def preserved_random_state(parameters: Sequence[Tensor] = ()) -> Iterator[None]:
    """Restore the random state of Python, NumPy, torch and the parameters' devices afterwards."""
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    accelerators = [(d, torch.get_device_module(d).get_rng_state(d)) for d in devices]
    python, cpu = random.getstate(), torch.get_rng_state()
    numpy, generator = mtrand.get_state(legacy=False), mtrand.get_bit_generator()
    # Exchanging NumPy's generator is faster than restoring its state. It drops a cached normal number, if there is one:
    # only then the state is restored.
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
