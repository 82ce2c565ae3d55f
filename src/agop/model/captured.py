"""Outputs of a model's layers in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

Outputs = dict[nn.Module, Any]


@contextmanager
def captured(layers: Iterable[nn.Module], keep: Callable[[Any], bool] = lambda output: True) -> Iterator[Outputs]:
    """Output of each layer's last call, in order of execution, where `keep` is true; the first item of a tuple.

    The model continues with copies, so that an in-place activation after a layer can't overwrite the captured output.
    """
    outputs: Outputs = {}

    def capture(module: nn.Module, _: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) and output else output
        outputs.pop(module, None)
        if not keep(first):
            return None
        outputs[module] = first
        if isinstance(output, Tensor):
            return output.clone()
        if type(output) is tuple and isinstance(first, Tensor):
            return (first.clone(), *output[1:])
        return None

    handles = [layer.register_forward_hook(capture) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
