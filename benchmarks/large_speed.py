"""Cost of each method on common networks at 224 px: time per sample over the time of one forward and backward pass."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

import agop
from agop.methods import AGOPExpected, ExpectedGradients, IntegratedGradients, Method, SmoothGrad
from measure import seconds, spread

# Instead of 50: the cost is linear in the number of points.
_POINTS = 2
_REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """A method's time per sample over that of one forward and backward pass, both times in ms, and their spread."""

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
    image = torch.randn(1, 3, 224, 224)
    return [cost for name, network in networks.items() for cost in method_costs(name, network.eval(), image)]


def method_costs(name: str, network: nn.Module, image: Tensor) -> list[Cost]:
    """Cost of every method for an image (1,C,H,W)."""
    prior = agop.fit(network, [image], only_correct=False, progress=False, rank=2)
    sides: dict[str, Callable[[], object]] = {"": lambda: one_pass(network, image)}
    for label, method in _methods().items():
        sides[label] = lambda method=method: agop.explain(network, image, method, prior, references=image)  # type: ignore[misc]
    times: dict[str, list[float]] = {label: [] for label in sides}
    one_pass(network, image)  # warm-up
    for _ in range(_REPEATS):
        for label, side in sides.items():
            times[label].append(seconds(side, 1))
    medians = {label: statistics.median(values) * 1e3 for label, values in times.items()}
    pass_ms = medians.pop("")
    return [
        Cost(name, label, ms / pass_ms, ms, pass_ms, max(spread(times[label]), spread(times[""])))
        for label, ms in medians.items()
    ]


def _methods() -> dict[str, str | Method]:
    """Every method by its label in the table. Methods with 50 points get `_POINTS`."""
    few: dict[str, Method] = {
        "integrated-gradients": IntegratedGradients(steps=_POINTS),
        "smoothgrad": SmoothGrad(samples=_POINTS),
        "expected-gradients": ExpectedGradients(samples=_POINTS),
        "agop-expected": AGOPExpected(samples=_POINTS),
    }
    return {
        f"{name}, {_POINTS} of 50 passes" if name in few else name: few.get(name, name) for name in agop.methods.names()
    }


def one_pass(network: nn.Module, image: Tensor) -> None:
    """One forward pass and one backward pass to the image, in plain torch."""
    leaf = image.clone().requires_grad_()
    logits = network(leaf).logits
    torch.autograd.grad(logits[0, logits.argmax()], leaf)
