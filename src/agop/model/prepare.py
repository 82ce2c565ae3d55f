"""prepare(): a copy of a trained model that computes the same input gradients faster."""

import copy
import warnings
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from agop.errors import AGOPWarning, ModelError, warn
from agop.model.layers import FOLDED_SCALE
from agop.model.outputs import Output, logit
from agop.model.probe import input_gradients
from agop.model.state import FINGERPRINT, fingerprint, preserved_random_state, unwrapped

_BATCH_NORMS = (nn.BatchNorm2d, nn.SyncBatchNorm)
# Number of images on which a prepared copy is compared with the model, and the tolerance as a share of the norm: a ReLU
# whose input is 0 up to rounding may flip.
_COMPARED_IMAGES, _TOLERANCE = 8, 0.01


def prepare(model: nn.Module, keep: Collection[str] = ()) -> nn.Module:
    """A copy of a trained model with the same logits and input gradients up to rounding, which it computes faster.

    The copy is in eval mode, frozen, mostly channels last, with batch norms folded into the convolutions before them. A
    folded convolution returns its batch norm's output.

    Args:
        model: The model. It isn't changed.
        keep: Names of convolutions that aren't folded, for GradCAM at a convolution itself.

    Returns:
        The copy.

    Raises:
        ModelError: The model can't be copied.

    Example:
        >>> fast = agop.prepare(model)
        >>> maps = agop.explain(fast, images, "vanilla")
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
                pair: Any = prepared.get_submodule(convolution), prepared.get_submodule(norm)
                folded = fuse_conv_bn_eval(*pair).requires_grad_(False)
                scale = (pair[1].running_var + pair[1].eps).rsqrt()
                setattr(folded, FOLDED_SCALE, (scale if pair[1].weight is None else scale * pair[1].weight).detach())
                prepared.set_submodule(convolution, folded)
                prepared.set_submodule(norm, nn.Identity().eval())
        _channels_last(prepared, graph)
    setattr(prepared, FINGERPRINT, fingerprint(model))  # the copy is the same model for a prior
    return prepared


def prepare_if_equal(model: nn.Module, image: Tensor, rows: int, output: Output = logit) -> nn.Module:
    """A prepared copy if there are batch norms to fold and it gives the same logits and gradients of the
    output, else the model.

    `image` (1,C,H,W) is one of its images, `rows` the maximum number of images at once. They are compared on noise of
    the image's size: the decision must be the same on all ranks, whose data differ.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    count = min(rows, _COMPARED_IMAGES)
    noise = torch.randn((count, *image.shape[1:]), generator=torch.Generator().manual_seed(0)).to(image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)
            prepared = prepare(model)
        ours, theirs = (input_gradients(m, noise, output=output) for m in (model, prepared))
    except Exception:  # a model that can't be copied or rewritten still works as it is
        return model
    pairs = ((ours.logits, theirs.logits), (ours.values, theirs.values))
    return prepared if all((a - b).norm() <= _TOLERANCE * a.norm() for a, b in pairs) else model


def _frozen_copy(model: nn.Module) -> nn.Module:
    try:
        frozen = copy.deepcopy(unwrapped(model))
    except Exception as error:  # the model's own code
        raise ModelError(f"the model can't be copied, use it without prepare(): {error}") from error
    for module in frozen.modules():
        module.training = False
    frozen.requires_grad_(False).zero_grad()
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


def _channels_last(model: nn.Module, graph: Graph) -> None:
    """Convert convolution weights to channels last, unless the model calls view() or couldn't be traced."""
    if not len(graph.nodes) or any(node.op == "call_method" and node.target == "view" for node in graph.nodes):
        return
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            memory_format = torch.channels_last
            # On a CPU, many channels of small maps are slow in channels last: 512 channels of 2×2 take 2.3 times as
            # long as with a contiguous input. A 1×1 convolution is a matrix product in either format.
            on_cpu = module.weight.device.type == "cpu"
            if module.weight.shape[1] >= 256 and on_cpu and module.kernel_size != (1, 1):
                memory_format = torch.contiguous_format
                module.register_forward_pre_hook(_contiguous)
            module.weight.data = module.weight.data.contiguous(memory_format=memory_format)


def _contiguous(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    # Not one input: it was passed by keyword, or to a convolution of the user's own.
    if len(inputs) == 1 and inputs[0].shape[-1] * inputs[0].shape[-2] <= 64:  # a number: TorchScript reads no globals
        return (inputs[0].contiguous(),)
    return inputs
