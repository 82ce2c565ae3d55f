"""A copy of a model for Captum to hook, with a module for each activation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, Proxy, Tracer
from torch.nn import functional

from agop.errors import ModelError, warn
from agop.model.outputs import is_bypassed
from agop.model.probe import Probe
from agop.model.targets import logits_of

_ACTIVATIONS: dict[Any, type[nn.Module]] = {
    functional.relu: nn.ReLU, torch.relu: nn.ReLU, torch.relu_: nn.ReLU, "relu": nn.ReLU, "relu_": nn.ReLU,
    functional.tanh: nn.Tanh, torch.tanh: nn.Tanh, "tanh": nn.Tanh,
    functional.sigmoid: nn.Sigmoid, torch.sigmoid: nn.Sigmoid, "sigmoid": nn.Sigmoid,
}  # fmt: skip
_DEEPLIFT_ACTIVATIONS = (nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.Softplus)


class Logits(nn.Module):
    """Logits (N,K) of a model with any kind of output, which `read` converts. One logit z becomes two, −z and z."""

    def __init__(self, model: nn.Module, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.read = model, read
        self.training = False

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a copy of the images: the model may write to its input."""
        return two_class_logits(self.read(logits_of(self.model(images.clone()), len(images))))


def two_class_logits(logits: Tensor) -> Tensor:
    """Logits (N,K) with K ≥ 2, one column per class."""
    return torch.cat([-logits, logits], dim=1) if logits.shape[1] == 1 else logits


def hookable_copy(probe: Probe, layer: nn.Module | None, image: Tensor) -> tuple[Logits, nn.Module | None]:
    """A copy of the probe's model, and of its layer, for Captum to hook.

    Captum overrides the backward pass of modules. It doesn't see a functional ReLU, rejects a module that is called
    twice, and its LRP rejects Flatten. If the model can be traced and the result has the same logits, the copy has a
    module for each activation and each call, and Flatten as a function. Otherwise it's a plain copy.
    """
    plain, plain_layer = _copy(probe.model, layer)
    logits, rewritten = Logits(plain, probe.read), _rewritten(*_copy(probe.model, layer))
    if rewritten is not None:
        traced, traced_layer = rewritten
        with torch.no_grad():
            same = torch.allclose(logits(image), Logits(traced, probe.read)(image), equal_nan=True)
        if same:
            return Logits(traced, probe.read), traced_layer
    return logits, plain_layer


def warn_if_plain_gradient(name: str, model: nn.Module) -> None:
    """Warn if Captum finds no activation to override, so its result is the plain gradient."""
    activations: tuple[type[nn.Module], ...] = ()
    if "Guided" in name or name == "Deconvolution":
        activations = (nn.ReLU,)
    elif "DeepLift" in name:
        activations = _DEEPLIFT_ACTIVATIONS
    if activations and not any(isinstance(module, activations) for module in model.modules()):
        warn(f"captum:{name} is the plain gradient: no module of the model is an activation that Captum overrides")


def _copy(model: nn.Module, layer: nn.Module | None) -> tuple[nn.Module, nn.Module | None]:
    try:
        return copy.deepcopy((model, layer))
    except Exception as error:  # any attribute of the model may fail
        raise ModelError(
            f"the model can't be copied, and Captum would modify it: {error}; choose another attribution"
        ) from error


class _LayerTracer(Tracer):
    """Traces a model and keeps the node of its layer's last output."""

    def __init__(self, layer: nn.Module | None) -> None:
        super().__init__()
        self.layer = layer
        self.output: Node | None = None

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Trace a call."""
        result = super().call_module(m, forward, args, kwargs)
        if m is self.layer:
            self.output = result.node if isinstance(result, Proxy) else None
        return result


def _rewritten(model: nn.Module, layer: nn.Module | None) -> tuple[GraphModule, nn.Module | None] | None:
    """The model with a module for each activation and each call. None if tracing fails or loses the layer."""
    tracer = _LayerTracer(layer)
    try:
        traced = GraphModule(model, tracer.trace(model))
    except Exception:  # tracing runs the model's own code, which may raise anything
        return None
    output = _without_identity(traced, tracer.output)
    called: set[int] = set()
    for index, node in enumerate(list(traced.graph.nodes)):
        if node.op == "call_module":
            _separate_call(traced, node, called, f"call_{index}")
        elif node.op in ("call_function", "call_method"):
            _replace_function(traced, node, f"activation_{index}")
    traced.delete_all_unused_submodules()
    traced.recompile()
    if layer is None:
        return traced, None
    return (traced, traced.get_submodule(str(output.target))) if output and output.op == "call_module" else None


def _without_identity(traced: GraphModule, node: Node | None) -> Node | None:
    """The node whose output an Identity returns, as Identity is removed."""
    while node is not None and node.op == "call_module" and _is_identity(traced.get_submodule(str(node.target))):
        node = node.args[0]  # type: ignore[assignment]  # a module's input is a node
    return node


def _is_identity(module: nn.Module) -> bool:
    return type(module) is nn.Identity or is_bypassed(module)


def _separate_call(traced: GraphModule, node: Node, called: set[int], name: str) -> None:
    """Give a second call of a module its own copy; replace Flatten by a function; remove Identity."""
    module: Any = traced.get_submodule(str(node.target))
    if isinstance(module, nn.Flatten):
        node.op, node.target = "call_function", torch.flatten
        node.args = (node.args[0], module.start_dim, module.end_dim)
    elif _is_identity(module):
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]  # a module's input is a node
        traced.graph.erase_node(node)
    elif id(module) in called:
        traced.add_submodule(name, copy.deepcopy(module))
        node.target = name
    called.add(id(module))
    if hasattr(module, "inplace"):
        module.inplace = False  # a hook needs the unchanged input


def _replace_function(traced: GraphModule, node: Node, name: str) -> None:
    """Replace a functional activation or max pool by a module."""
    if node.target is functional.max_pool2d and not node.kwargs.get("return_indices"):
        options = {key: value for key, value in node.kwargs.items() if key not in ("input", "return_indices")}
        module: nn.Module = nn.MaxPool2d(*node.args[1:], **options)  # type: ignore[arg-type]
    elif node.target in _ACTIVATIONS and node.args and set(node.kwargs) <= {"inplace"}:
        module = _ACTIVATIONS[node.target]()
    else:
        return
    traced.add_submodule(name, module.eval())
    node.op, node.target, node.args, node.kwargs = "call_module", name, node.args[:1], {}
