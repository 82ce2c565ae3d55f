"""prepare(): a copy of a trained model that gives the same input gradients sooner."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.fx import Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from agop.errors import warn
from agop.fingerprint import carry_fingerprint
from agop.gradients import unwrapped

_BATCH_NORMS = (nn.BatchNorm2d, nn.SyncBatchNorm)


def prepare(model: nn.Module) -> nn.Module:
    """A copy in eval mode, frozen, channels last, with batch norms folded into the convolutions before them.

    The same logits and input gradients to rounding; the original is untouched. For gradient methods:
    the output of a folded convolution is what its batch norm gave, so GradCAM there sees other maps.
    """
    prepared = _still_copy(model)
    try:
        pairs = _foldable(prepared)
    except Exception as error:  # tracing runs the model's own code, which may raise anything
        pairs = []
        warn(f"batch norms are left as they are, the model cannot be traced: {error}")
    for convolution, norm in pairs:
        _fold(prepared, convolution, norm)
    prepared.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in its stub
    carry_fingerprint(prepared, model)
    return prepared


def _still_copy(model: nn.Module) -> nn.Module:
    still = copy.deepcopy(unwrapped(model))
    for module in still.modules():
        module.training = False
    for parameter in still.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    return still


def _foldable(model: nn.Module) -> list[tuple[str, str]]:
    """Names of (convolution, batch norm) where the norm alone sees the convolution, each called once."""
    if not any(isinstance(module, _BATCH_NORMS) for module in model.modules()):
        return []
    # A throw-away copy: a forward pass may keep what it was given.
    traced = symbolic_trace(copy.deepcopy(model))
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    modules = dict(traced.named_modules())
    pairs = []
    for node in traced.graph.nodes:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        names = str(before.target), str(node.target)
        convolution, norm = (modules[name] for name in names)
        if calls[names[0]] == calls[names[1]] == 1 and _folds(convolution, norm):
            pairs.append(names)
    return pairs


def _folds(convolution: nn.Module, norm: nn.Module) -> bool:
    """True for a plain convolution and a batch norm with running statistics, in full precision, unhooked."""
    return (
        type(convolution) is nn.Conv2d
        and type(norm) in _BATCH_NORMS
        and norm.running_mean is not None
        and convolution.weight.dtype in (torch.float32, torch.float64)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in (convolution, norm))
    )


def _fold(model: nn.Module, convolution: str, norm: str) -> None:
    pair: Any = model.get_submodule(convolution), model.get_submodule(norm)
    fused = fuse_conv_bn_eval(*pair)
    model.set_submodule(convolution, fused.requires_grad_(False))
    model.set_submodule(norm, nn.Identity().eval())
