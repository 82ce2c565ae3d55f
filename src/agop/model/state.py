"""State: put a model into eval mode with frozen parameters and restore it exactly; digests of its weights."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from operator import is_not
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Table = dict[str, Any]
# Values of each tensor in a fingerprint: reading all would cost as much as a forward pass.
_SAMPLES_PER_TENSOR = 16
# Attribute of a rewritten copy: the fingerprint of the original.
FINGERPRINT = "_agop_fingerprint"


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
        # Not of TorchScript modules, whose entries can't be exchanged.
        modules = [module for module in parts.modules if not isinstance(module, torch.jit.ScriptModule)]
        self._tables = [(table, table.copy()) for module in modules for table in _tables(module)]
        self._values = [(buffer, buffer.detach().clone()) for buffer in parts.buffers]
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
        """Undo values that were written, and entries that were exchanged or added. True if there were any."""
        changed = False
        for table, before in self._tables:
            if table.keys() != before.keys() or any(map(is_not, table.values(), before.values())):
                table.clear()
                table.update(before)
                changed = True
        for buffer, copy in self._values:
            changed |= _restore_values(buffer, copy)
        return changed


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


def _restore_values(buffer: Tensor, copy: Tensor) -> bool:
    """Undo values that a forward pass wrote. An unchanged buffer isn't written to. True if it had changed."""
    if buffer.layout != torch.strided or buffer.is_meta or torch.equal(buffer, copy):
        return False
    comparable = buffer.is_floating_point() and buffer.shape == copy.shape
    if comparable and torch.allclose(buffer, copy, rtol=0, atol=0, equal_nan=True):
        return False
    with torch.inference_mode(buffer.is_inference()):
        if buffer.shape == copy.shape:
            buffer.detach().copy_(copy)
        else:
            buffer.data = copy.clone()
    return True


@contextmanager
def preserved_random_state(parameters: Sequence[Tensor] = ()) -> Iterator[None]:
    """Restore the random state of Python, NumPy, torch and the parameters' devices afterwards."""
    devices = {p.device for p in parameters if p.device.type not in ("cpu", "meta")}
    accelerators = [(d, torch.get_device_module(d).get_rng_state(d)) for d in devices]
    python, numpy, cpu = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        for device, state in accelerators:
            torch.get_device_module(device).set_rng_state(state, device)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DataParallel, DistributedDataParallel or torch.compile.

    Passes through the wrappers would reduce gradients or compile again.
    """
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    # _orig_mod is private, but torch.compile has no public way back to the model.
    while isinstance(model, parallel) or hasattr(model, "_orig_mod"):
        inner: Any = model.module if isinstance(model, parallel) else model._orig_mod
        model = inner
    return model


def fingerprint(model: nn.Module) -> dict[str, str]:
    """Digests of the architecture (names and shapes) and of the weights (evenly spaced samples)."""
    model = unwrapped(model)
    carried: dict[str, str] | None = getattr(model, FINGERPRINT, None)
    if carried is not None:
        return dict(carried)
    architecture, weights = hashlib.sha256(), hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        architecture.update(f"{name}{tuple(tensor.shape)}".encode())
        weights.update(_sampled(tensor))
    return {"architecture": architecture.hexdigest()[:16], "weights": weights.hexdigest()[:16]}


def parameters_digest(model: nn.Module) -> str:
    """Digest of the parameters without buffers: equal on all ranks of a training at each step."""
    digest = hashlib.sha256()
    for tensor in unwrapped(model).parameters():
        digest.update(_sampled(tensor))
    return digest.hexdigest()[:16]


def _sampled(tensor: Tensor) -> bytes:
    """Evenly spaced values in float64: enough to detect any training step, without reading all."""
    flat = tensor.detach().reshape(-1)
    # float64 only for large tensors, whose indices float32 can't represent: existing fingerprints stay valid.
    dtype = torch.float32 if len(flat) <= 2**24 else torch.float64
    count = min(len(flat), _SAMPLES_PER_TENSOR)
    places = torch.linspace(0, max(0, len(flat) - 1), count, dtype=dtype, device="cpu").long()
    return flat[places.to(flat.device)].to("cpu", torch.float64).numpy().tobytes()
