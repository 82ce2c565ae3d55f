"""Puts a model into eval mode with frozen parameters for a while, and restores it exactly."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from operator import is_not
from typing import Any

import torch
from numpy.random import MT19937, mtrand
from torch import Tensor, nn

Table = dict[str, Any]
# Generators used instead of NumPy's own. Several, because calls may be nested.
_SPARES = [MT19937(0)]
# Bytes of MT19937's state in memory: 624 words and a position.
_MT19937_BYTES = 2500


class Parts:
    """The modules, parameters and buffers of a model, collected in one pass over it."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        tables = [_tables(module) for module in self.modules]
        self.parameters = [p for parameters, _ in tables for p in parameters.values() if p is not None]
        self.buffers = [b for _, buffers in tables for b in buffers.values() if b is not None]


class SavedBuffers:
    """The buffers of a model and the entries of its tables, to undo what forward passes write."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tables = [_copy_tables(module) for module in parts.modules]
        self._copies = [buffer.detach().clone() for buffer in parts.buffers]
        self._passes, self._written = 0, False

    def before_pass(self) -> None:
        """Restore what the previous pass wrote, so that each pass starts from the same buffers.

        If the first pass wrote nothing, the later ones aren't checked: on a GPU each comparison waits for the device.
        """
        if self._passes == 1:
            self._written = self.restore()
        elif self._written:
            self.restore()
        self._passes += 1

    def restore(self) -> bool:
        """Restore all buffers. True if one had changed."""
        changed = [_restore_tables(*pair) for pair in zip(self._parts.modules, self._tables, strict=True)]
        changed += [_restore_values(*pair) for pair in zip(self._parts.buffers, self._copies, strict=True)]
        return any(changed)


@contextmanager
def undisturbed(parts: Parts) -> Iterator[SavedBuffers]:
    """Inside, the model is ready for input gradients. Afterwards its modes, flags, buffers and the random state are
    restored.

    Modes are set module by module, not with model.eval(): a model may override train() to do more than set flags, and
    only flags can be restored exactly.
    """
    in_training = [module for module in parts.modules if module.training]
    trainable = [p for p in parts.parameters if p.requires_grad and p.is_leaf]
    saved = SavedBuffers(parts)
    try:
        for module in in_training:
            module.training = False
        for parameter in trainable:
            parameter.requires_grad_(False)
        # Entering a mode that is already on would cost as much as a layer of a small network.
        ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        graph = nullcontext() if torch.is_grad_enabled() else torch.enable_grad()
        with preserved_random_state(parts.parameters), ordinary, graph, _without_autocast(parts.parameters):
            yield saved
    finally:
        for module in in_training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)
        saved.restore()


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
    """Copies of both tables. None for TorchScript, whose entries can't be exchanged."""
    if isinstance(module, torch.jit.ScriptModule):
        return None
    parameters, buffers = _tables(module)
    return parameters.copy(), buffers.copy()


def _restore_tables(module: nn.Module, saved: tuple[Table, Table] | None) -> bool:
    """Undo entries that a forward pass exchanged, added or filled in. True if there were any."""
    changed = False
    if saved is None:
        return changed
    for table, before in zip(_tables(module), saved, strict=True):
        if table.keys() != before.keys() or any(map(is_not, table.values(), before.values())):
            table.clear()
            table.update(before)
            changed = True
    return changed


def _restore_values(buffer: Tensor, copy: Tensor) -> bool:
    """Undo values that a forward pass wrote. An unchanged buffer isn't written to. True if it had changed."""
    if buffer.layout != torch.strided or buffer.is_meta or _equal(buffer, copy):
        return False
    with torch.inference_mode(buffer.is_inference()):
        if buffer.shape == copy.shape:
            buffer.detach().copy_(copy)
        else:
            buffer.data = copy.clone()
    return True


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
    with _spare_numpy_generator():
        try:
            yield
        finally:
            random.setstate(python)
            torch.set_rng_state(cpu)
            for device, state in accelerators:
                torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def _spare_numpy_generator() -> Iterator[None]:
    """Let NumPy draw from a copy of its generator, which is faster than restoring the state of its own."""
    state, generator = mtrand.get_state(legacy=False), mtrand.get_bit_generator()
    if type(generator) is MT19937:
        spare: Any = _SPARES.pop() if _SPARES else MT19937(0)
        # A copy of the memory: setting `state` would take longer than a gradient pass of a small network.
        ctypes.memmove(spare.ctypes.state_address, generator.ctypes.state_address, _MT19937_BYTES)
    else:
        spare = type(generator)(0)
        spare.state = generator.state
    mtrand.set_bit_generator(spare)
    try:
        yield
    finally:
        mtrand.set_bit_generator(generator)
        if state["has_gauss"]:  # exchanging the generator drops a cached normal number
            mtrand.set_state(state)
        if type(spare) is MT19937:
            _SPARES.append(spare)
