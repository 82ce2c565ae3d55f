"""A device "remote" without hardware: its tensors compute on the CPU, but mixing them with CPU tensors raises.

It uses torch's private-use backend in Python, which is experimental, so this file is the only place that touches it.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

REMOTE = "remote"
# As on a GPU: copies between devices, and indices on the CPU, are allowed.
_MIXED = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}


class Remote(torch.Tensor):
    """A tensor that says it is on the device, around one on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=torch.device(REMOTE, 0)
        )

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        """Torch has it for tensors on any device, but not for subclasses."""
        return self.inner.tolist()

    def __repr__(self):
        return f"Remote({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Backend(_DummyBackendModule):
    """The device's module, as torch.cuda: its random numbers are the CPU's."""

    def get_rng_state(self, device=None):
        return torch.get_rng_state()

    def set_rng_state(self, state, device=None):
        torch.set_rng_state(state)

    def synchronize(self, device=None):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend(REMOTE, Backend())


class RemoteMode(TorchDispatchMode):
    """Operators that create tensors on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func, args, kwargs):
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    on_device = [tensor for tensor in tensors if isinstance(tensor, Remote)]
    elsewhere = [tensor for tensor in tensors if tensor.ndim and not isinstance(tensor, Remote)]
    if on_device and elsewhere and func.overloadpacket.__name__ not in _MIXED:
        raise RuntimeError(f"{func} got tensors on the CPU and on {REMOTE}")
    target = kwargs.get("device")
    remote = bool(on_device) if target is None else torch.device(target).type == REMOTE
    if target is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and isinstance(result, torch.Tensor):
        return args[0]
    return tree_map(_wrapped, result) if remote else result


def _inner(value):
    return value.inner if isinstance(value, Remote) else value


def _wrapped(value):
    return Remote(value) if isinstance(value, torch.Tensor) else value


@contextmanager
def remote_device():
    """The device, while the context is open."""
    with RemoteMode():
        yield torch.device(REMOTE, 0)
