"""What each method costs on networks people use, at 224 px: a sample's time over one forward and backward pass."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

import agop
from agop.methods import IntegratedGradients, Method, SmoothGrad
from measure import seconds, spread

# Of 50; the cost is linear in them.
_POINTS = 2
_REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """A method's time a sample over that of one forward and backward pass, the milliseconds of both, and the spread."""

    network: str
    method: str
    passes: float
    method_ms: float
    pass_ms: float
    noise: float


def large_costs() -> list[Cost]:
    networks = {
        "ResNet-50": ResNetForImageClassification(ResNetConfig(num_labels=1000)),
        "ViT-B/16": ViTForImageClassification(ViTConfig(num_labels=1000)),
    }
    return [cost for name, network in networks.items() for cost in _costs(name, network.eval())]


def _costs(name: str, network: nn.Module) -> list[Cost]:
    image = torch.randn(1, 3, 224, 224)
    prior = agop.AGOP(torch.rand(3, 224, 224, dtype=torch.float64), 1)
    sides: dict[str, Callable[[], object]] = {"": lambda: one_pass(network, image)}
    for told, method in _methods().items():
        sides[told] = lambda method=method: agop.explain(network, image, method, prior)  # type: ignore[misc]
    taken: dict[str, list[float]] = {told: [] for told in sides}
    one_pass(network, image)  # the first one is slower
    for _ in range(_REPEATS):
        for told, side in sides.items():
            taken[told].append(seconds(side, 1))
    middle = {told: statistics.median(spent) * 1e3 for told, spent in taken.items()}
    below = middle.pop("")
    return [
        Cost(name, told, ms / below, ms, below, max(spread(taken[told]), spread(taken[""])))
        for told, ms in middle.items()
    ]


def _methods() -> dict[str, str | Method]:
    """Every method by what the table calls it; those of 50 points with a few."""
    few: dict[str, Method] = {
        "integrated-gradients": IntegratedGradients(steps=_POINTS),
        "smoothgrad": SmoothGrad(samples=_POINTS),
    }
    return {
        f"{name}, {_POINTS} of 50 passes" if name in few else name: few.get(name, name) for name in agop.methods.names()
    }


def one_pass(network: nn.Module, image: Tensor) -> None:
    """A forward pass, and a backward pass to the image, by torch alone."""
    leaf = image.clone().requires_grad_()
    logits = network(leaf).logits
    torch.autograd.grad(logits[0, logits.argmax()], leaf)
