"""prepare(): a copy of a trained model that computes the same input gradients faster."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from agop.errors import ModelError, warn
from agop.model.fingerprint import carry_fingerprint
from agop.model.probe import unwrapped
from agop.model.undisturbed import preserved_random_state

_BATCH_NORMS = (nn.BatchNorm2d, nn.SyncBatchNorm)
_FOLDED = "_agop_folded"


def prepare(model: nn.Module, keep: Collection[str] = ()) -> nn.Module:
    """A copy in eval mode, frozen, mostly channels last, with batch norms folded into the convolutions before them.

    It has the same logits and input gradients up to rounding. The original isn't changed. A folded convolution returns
    its batch norm's output: for GradCAM at a convolution itself, put its name into `keep`.
    """
    with preserved_random_state():
        prepared = _frozen_copy(model)
        try:
            # Tracing runs the forward pass, which may store proxies in the model: trace a copy.
            graph = symbolic_trace(copy.deepcopy(prepared)).graph
        except Exception as error:  # the model's own code
            warn(f"the model can't be traced, so it is only copied and frozen: {error}")
            graph = Graph()
        for convolution, norm in _foldable(prepared, graph):
            if convolution not in keep:
                _fold(prepared, convolution, norm)
        _channels_last(prepared, graph)
    carry_fingerprint(prepared, model)
    return prepared


def is_folded(module: nn.Module) -> bool:
    """True for a convolution that returns the output of the batch norm after it."""
    return hasattr(module, _FOLDED)


def folded_scale(module: nn.Module) -> Tensor | None:
    """Factors (D,) by which the batch norm folded into a convolution scales its outputs. None without one."""
    return getattr(module, _FOLDED, None)


def _frozen_copy(model: nn.Module) -> nn.Module:
    try:
        frozen = copy.deepcopy(unwrapped(model))
    except Exception as error:  # the model's own code
        raise ModelError(f"the model can't be copied, use it without prepare(): {error}") from error
    for module in frozen.modules():
        module.training = False
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return frozen


def _foldable(model: nn.Module, graph: Graph) -> list[tuple[str, str]]:
    """Names of (convolution, batch norm) pairs where only the norm uses the convolution's output, each is called once,
    and neither is used in another way.
    """
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    modules_read = {str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    names = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    pairs = []
    for node in graph.nodes:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        pair = str(before.target), str(node.target)
        modules = [model.get_submodule(name) for name in pair]
        called_once = all(calls[name] == 1 and name not in modules_read for name in pair)
        named_once = all(names[id(module)] == 1 for module in modules)
        if called_once and named_once and _folds(*modules):
            pairs.append(pair)
    return pairs


def _folds(convolution: nn.Module, norm: nn.Module) -> bool:
    """True for a plain convolution and a batch norm with running statistics, in full precision, without hooks."""
    # Private: torch has no public way to ask for hooks.
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        type(convolution) is nn.Conv2d
        and type(norm) in _BATCH_NORMS
        and norm.running_mean is not None
        and convolution.weight.dtype in (torch.float32, torch.float64)
        and not any(getattr(module, kind) for module in (convolution, norm) for kind in hooks)
    )


def _fold(model: nn.Module, convolution: str, norm: str) -> None:
    pair: Any = model.get_submodule(convolution), model.get_submodule(norm)
    folded = fuse_conv_bn_eval(*pair).requires_grad_(False)
    setattr(folded, _FOLDED, _scale(pair[1]))
    model.set_submodule(convolution, folded)
    model.set_submodule(norm, nn.Identity().eval())


def _scale(norm: Any) -> Tensor:
    scale: Tensor = (norm.running_var + norm.eps).rsqrt()
    return scale.detach() if norm.weight is None else (scale * norm.weight).detach()


def _channels_last(model: nn.Module, graph: Graph) -> None:
    """Convert convolution weights to channels last, unless the model calls view() or couldn't be traced."""
    if not len(graph.nodes) or any(node.op == "call_method" and node.target == "view" for node in graph.nodes):
        return
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            memory_format = torch.channels_last
            if _many_channels(module):
                memory_format = torch.contiguous_format
                module.register_forward_pre_hook(_contiguous)
            module.weight.data = module.weight.data.contiguous(memory_format=memory_format)


def _many_channels(module: nn.Conv2d) -> bool:
    """True for a convolution on a CPU that is slow in channels last if its maps are small: 512 channels of 2×2 take 2.3
    times as long as with a contiguous input. A 1×1 convolution is a matrix product in either format.
    """
    return module.weight.shape[1] >= 256 and module.weight.device.type == "cpu" and module.kernel_size != (1, 1)


def _contiguous(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    # Not one input: it was passed by keyword, or to a convolution of the user's own.
    if len(inputs) == 1 and inputs[0].shape[-1] * inputs[0].shape[-2] <= 64:  # a number: TorchScript reads no globals
        return (inputs[0].contiguous(),)
    return inputs
