"""A copy of a model that Captum may hook and rewrite, in which it finds what it looks for."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn import functional

from agop.errors import ModelError, warn
from agop.model.targets import logits_of

_ACTIVATIONS: dict[Any, type[nn.Module]] = {
    functional.relu: nn.ReLU, torch.relu: nn.ReLU, torch.relu_: nn.ReLU, "relu": nn.ReLU, "relu_": nn.ReLU,
    functional.tanh: nn.Tanh, torch.tanh: nn.Tanh, "tanh": nn.Tanh,
    functional.sigmoid: nn.Sigmoid, torch.sigmoid: nn.Sigmoid, "sigmoid": nn.Sigmoid,
}  # fmt: skip
_KNOWN_TO_CAPTUM = (nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.Softplus)


class Logits(nn.Module):
    """Logits (N,K) of a model whatever they come in; one logit z as two classes, −z and z."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = False

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a copy of the images: a model may write to what it is given."""
        return two_sided(logits_of(self.model(images.clone()), len(images)))


def two_sided(logits: Tensor) -> Tensor:
    """Logits (N,K) with K of 2 or more, so that a class is a column."""
    return torch.cat([-logits, logits], dim=1) if logits.shape[1] == 1 else logits


def hookable(model: nn.Module, layer: nn.Module | None, image: Tensor) -> tuple[Logits, nn.Module | None]:
    """A copy of the model, and of its layer, for Captum to hook.

    Captum changes what modules do in the backward pass. It sees no ReLU that is a function, refuses a module that is
    called twice, and its LRP refuses Flatten; so the copy has each as its own module, or as a function, where the
    model can be traced and gives the same logits.
    """
    plain, its_layer = _copied(model, layer)
    rewritten = _rewritten(*_copied(model, layer))
    if rewritten is not None:
        with torch.no_grad():
            same = torch.allclose(Logits(plain)(image), Logits(rewritten[0])(image), equal_nan=True)
        if same:
            return Logits(rewritten[0]), rewritten[1]
    return Logits(plain), its_layer


def warn_if_blind(name: str, model: nn.Module) -> None:
    """Warn where Captum would give a plain gradient under another name."""
    sees: tuple[type[nn.Module], ...] = ()
    if "Guided" in name or name == "Deconvolution":
        sees = (nn.ReLU,)
    elif "DeepLift" in name:
        sees = _KNOWN_TO_CAPTUM
    if sees and not any(isinstance(module, sees) for module in model.modules()):
        warn(f"captum:{name}: Captum finds no activation it knows among the model's modules and gives a plain gradient")


def _copied(model: nn.Module, layer: nn.Module | None) -> tuple[nn.Module, nn.Module | None]:
    try:
        return copy.deepcopy((model, layer))
    except Exception as error:  # what a model holds decides
        raise ModelError(
            f"the model cannot be copied, and Captum would change it: {error}; choose another attribution"
        ) from error


def _rewritten(model: nn.Module, layer: nn.Module | None) -> tuple[GraphModule, nn.Module | None] | None:
    """The model with a module for each activation and each call; None if it cannot be, or hides the layer."""
    try:
        traced = symbolic_trace(model)
    except Exception:  # tracing runs the model's own code, which may raise anything
        return None
    called: set[int] = set()
    for place, node in enumerate(list(traced.graph.nodes)):
        if node.op == "call_module":
            _call_once(traced, node, called, f"again_{place}")
        elif node.op in ("call_function", "call_method"):
            _make_module(traced, node, f"activation_{place}")
    traced.delete_all_unused_submodules()
    traced.recompile()
    there = layer is None or any(module is layer for module in traced.modules())
    return (traced, layer) if there else None


def _call_once(traced: GraphModule, node: Node, called: set[int], name: str) -> None:
    """A module's own copy for its second call; Flatten as a function, and Identity as nothing."""
    module: Any = traced.get_submodule(str(node.target))
    if isinstance(module, nn.Flatten):
        node.op, node.target = "call_function", torch.flatten
        node.args = (node.args[0], module.start_dim, module.end_dim)
    elif type(module) is nn.Identity:
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]  # a module's input is a node
        traced.graph.erase_node(node)
    elif id(module) in called:
        traced.add_submodule(name, copy.deepcopy(module))
        node.target = name
    called.add(id(module))
    if hasattr(module, "inplace"):
        module.inplace = False  # a hook must see what came in


def _make_module(traced: GraphModule, node: Node, name: str) -> None:
    """An activation, or a max pool, as a module of its own."""
    if node.target is functional.max_pool2d and not node.kwargs.get("return_indices"):
        options = {key: value for key, value in node.kwargs.items() if key not in ("input", "return_indices")}
        made: nn.Module = nn.MaxPool2d(*node.args[1:], **options)  # type: ignore[arg-type]
    elif node.target in _ACTIVATIONS and node.args and set(node.kwargs) <= {"inplace"}:
        made = _ACTIVATIONS[node.target]()
    else:
        return
    traced.add_submodule(name, made.eval())
    node.op, node.target, node.args, node.kwargs = "call_module", name, node.args[:1], {}
