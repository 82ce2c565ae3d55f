"""State: put a model into eval mode with frozen parameters and restore it exactly; digests of its weights."""

import hashlib
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from operator import is_not
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from agop.errors import ModelError

Table = dict[str, Any]
# Values of each tensor in a fingerprint: reading all would cost as much as a forward pass.
_SAMPLES_PER_TENSOR = 16
# Seconds after which a thread that draws random numbers has drawn one, also on a busy machine.
_WAIT = 0.1
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
    """Inside, the model is ready for input gradients. Afterwards its modes, flags and buffers are restored.

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
        with _eager(parts.modules), ordinary, graph, without_autocast(parts.parameters):
            yield saved
    finally:
        for module in in_training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)
        saved.restore()


@contextmanager
def _eager(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Run compiled modules as they were before: a compiled graph ignores hooks that are registered later."""
    if any(module._compiled_call_impl is not None or "_orig_mod" in module._modules for module in modules):
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield


@contextmanager
def without_autocast(parameters: Sequence[Tensor] = ()) -> Iterator[None]:
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


class RandomState:
    """The states of the random generators of Python, NumPy, torch and the parameters' devices, by name."""

    def __init__(self, parameters: Sequence[Tensor] = ()) -> None:
        self._devices = {str(p.device): p.device for p in parameters if p.device.type not in ("cpu", "meta")}
        self._states = self._current()

    @property
    def names(self) -> set[str]:
        """Names of all generators."""
        return set(self._states)

    def _current(self) -> dict[str, Any]:
        numpy = np.random.get_state(legacy=False)
        devices = {name: torch.get_device_module(d).get_rng_state(d) for name, d in self._devices.items()}
        return {"python": random.getstate(), "numpy": numpy, "cpu": torch.get_rng_state(), **devices}

    def changed(self) -> set[str]:
        """Names of the generators that numbers were drawn from since."""
        now = self._current()
        return {name for name, state in self._states.items() if not _same_state(state, now[name])}

    def restore(self, names: Collection[str]) -> None:
        """Set these generators to their state."""
        for name in names:
            state = self._states[name]
            if name == "python":
                random.setstate(state)
            elif name == "numpy":
                np.random.set_state(state)
            elif name == "cpu":
                torch.set_rng_state(state)
            else:
                torch.get_device_module(self._devices[name]).set_rng_state(state, self._devices[name])


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, dict):  # NumPy's
        return all(_same_state(value, other.get(name)) for name, value in one.items())
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(np.all(one == other))


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices operations of this thread that draw from torch's generators."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parameters, self.names = parameters, set[str]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in operation.tags:
            return operation(*args, **(kwargs or {}))
        before = RandomState(self.parameters)
        result = operation(*args, **(kwargs or {}))
        self.names |= before.changed() - {"python", "numpy"}
        return result


def drawn_by(run: Callable[[], object], parameters: Sequence[Tensor]) -> set[str]:
    """Names of the generators from which a pass draws, not those from which other threads draw meanwhile.

    Python and NumPy don't tell which thread draws: their numbers are the pass's if none are drawn while waiting.
    """
    with _Draws(parameters) as draws, torch.no_grad():
        run()
    before = RandomState()
    with torch.no_grad():
        run()
    of_torch: set[str] = draws.names
    others = before.changed() - {"cpu"}
    return of_torch | (others - _drawn_while_waiting() if others else others)


def _drawn_while_waiting(parameters: Sequence[Tensor] = ()) -> set[str]:
    """Names of the generators from which other threads draw."""
    before = RandomState(parameters)
    time.sleep(_WAIT)
    return before.changed()


@contextmanager
def preserved_random_state(parameters: Sequence[Tensor] = ()) -> Iterator[None]:
    """Restore the random state of Python, NumPy, torch and the parameters' devices afterwards.

    Not that of a generator from which another thread draws: it would get the same numbers twice.
    """
    before = RandomState(parameters)
    try:
        yield
    finally:
        changed = before.changed()
        if changed:
            before.restore(changed - _drawn_while_waiting(parameters))


@contextmanager
def seeded(seed: int, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Seed the generators of Python, NumPy, torch and the parameters' devices, and restore them afterwards."""
    before = RandomState(parameters)
    try:
        for set_seed in (random.seed, np.random.seed, torch.manual_seed):
            set_seed(seed)
        yield
    finally:
        before.restore(before.names)


def refuse_sharded(modules: Iterable[nn.Module]) -> None:
    """Raise for modules in FullyShardedDataParallel, whose parameters our passes would detach from the training."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(module, fsdp.FullyShardedDataParallel) for module in modules):
        raise ModelError(
            "the model is in FullyShardedDataParallel, whose training a pass of agop would break: use fully_shard "
            "(FSDP2), or collect after the training with agop.fit on the model with the gathered checkpoint"
        )


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
    tensor = tensor.detach()
    # A parameter that fully_shard has split over the ranks is gathered: a collective call.
    flat = (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).reshape(-1)
    # float64 only for large tensors, whose indices float32 can't represent: existing fingerprints stay valid.
    dtype = torch.float32 if len(flat) <= 2**24 else torch.float64
    count = min(len(flat), _SAMPLES_PER_TENSOR)
    places = torch.linspace(0, max(0, len(flat) - 1), count, dtype=dtype, device="cpu").long()
    return flat[places.to(flat.device)].to("cpu", torch.float64).numpy().tobytes()
