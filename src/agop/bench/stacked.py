"""Several networks trained at once: one step over stacked weights costs little more than a step of one network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agop.bench.pupil import Pupil, optimizer_for
from agop.errors import InputError
from agop.model.probe import Gradients, derivative, derivative_with_layer
from agop.model.targets import predicted
from agop.scenarios import Recipe

Weights = dict[str, Tensor]
Together = Callable[[Weights, Tensor], Tensor]
# A kill loses at most this much training, plus one epoch.
CHECKPOINT_SECONDS = 20.0


def train_stacked(pupils: Sequence[Pupil], network: Any, recipe: Recipe, epochs: int, until: int) -> Iterator[float]:
    """Like `train_epochs` for each network, but all share one forward pass and two backward passes per step.

    They are of one class `network`, which has a `stacked_forward`.
    """
    if recipe.flips or recipe.best or recipe.schedule != "cosine":
        raise InputError(
            "networks trained together need the cosine schedule, without flips or a best epoch: change the recipe"
        )
    weights = stacked([pupil.model for pupil in pupils])
    splits = [pupil.task.training for pupil in pupils]
    images, labels = torch.stack([split.images for split in splits]), torch.stack([split.labels for split in splits])
    which = torch.arange(len(pupils))[:, None]
    optimizer, schedule = optimizer_for(list(weights.values()), recipe, epochs, -(-labels.shape[1] // recipe.batch))
    start, written = pupils[0].epoch, time.monotonic()
    if start:
        states = [pupil.state for pupil in pupils if pupil.state is not None]
        optimizer.load_state_dict(_joined([state["optimizer"] for state in states]))
        schedule.load_state_dict(states[0]["schedule"])
    for epoch in range(start, until):
        orders = torch.stack([torch.randperm(labels.shape[1], generator=pupil.order(epoch)) for pupil in pupils])
        for rows in torch.split(orders, recipe.batch, dim=1):
            batch, truth = images[which, rows], labels[which, rows]
            gradients = _backward(network, weights, batch, truth)
            for pupil, *own in zip(pupils, gradients, truth, batch, strict=True):
                pupil.hook.add(*own)
            optimizer.step()
            for pupil in pupils:
                pupil.note()
        schedule.step()
        if time.monotonic() - written >= CHECKPOINT_SECONDS or epoch + 1 == until:
            states_by_pupil = _split(optimizer.state_dict(), len(pupils))
            for pupil, state in zip(pupils, states_by_pupil, strict=True):
                pupil.write(epoch=epoch + 1, optimizer=state, schedule=schedule.state_dict())
            written = time.monotonic()
        yield (epoch + 1) / until


def _split(state: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The optimizer state of each network, from that of the stack: moments (S,…) are cut, step numbers are shared."""
    return [
        {**state, "state": {
            parameter: {name: value[place].clone() if name != "step" else value for name, value in moments.items()}
            for parameter, moments in state["state"].items()
        }}
        for place in range(count)
    ]  # fmt: skip


def _joined(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The optimizer state of a stack, from those of its networks: the inverse of `_split`."""
    first = states[0]
    moments = {
        parameter: {
            name: value if name == "step" else torch.stack([state["state"][parameter][name] for state in states])
            for name, value in values.items()
        }
        for parameter, values in first["state"].items()
    }
    return {**first, "state": moments}


def _backward(network: Any, weights: Weights, images: Tensor, labels: Tensor) -> list[Gradients]:
    """Set the weights' gradients of each network's mean loss. Returns the gradients of the images per network."""
    leaf = images.flatten(0, 1).requires_grad_()
    outputs = _first_outputs(network, images)
    logits = network.stacked_forward(weights, leaf.reshape(images.shape), *outputs).flatten(0, 1)
    loss = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / labels.shape[1]
    weight_gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
    for weight, gradient in zip(weights.values(), weight_gradients, strict=True):
        weight.grad = gradient
    targets = predicted(logits.detach())
    deltas: list[Sequence[Tensor]] = []
    if outputs:
        values, at_layer = derivative_with_layer(logits, targets, leaf, outputs[0])
        deltas = [[own.permute(2, 0, 1)[..., None] for own in at_layer]]  # (S,D,P,N) → (N,D,P,1) of each network
    else:
        values = derivative(logits, targets, leaf)
    parts = [torch.split(part, labels.shape[1]) for part in (values, logits.detach(), targets)]
    return [Gradients(*own) for own in zip(*parts, *deltas, strict=True)]


def _first_outputs(network: Any, images: Tensor) -> tuple[Tensor, ...]:
    """The argument of `stacked_forward` that gets the gradient of the first layer's outputs, if the class has one."""
    if not hasattr(network, "patch_outputs"):
        return ()
    shape = (len(images), *network.patch_outputs, images.shape[1])
    return (images.new_zeros(1).expand(shape).requires_grad_(),)


class StackOfOne(nn.Module):
    """A network evaluated by its class's `stacked_forward`: the same logits up to rounding, in less time."""

    def __init__(self, model: nn.Module, together: Together) -> None:
        super().__init__()
        self.together = together
        self.weights = {name: weight.detach()[None] for name, weight in model.named_parameters()}

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N,K) of images (N,C,H,W)."""
        return self.together(self.weights, images[None])[0]


def stacked(models: Sequence[nn.Module]) -> Weights:
    """Parameters of S models, stacked (S,…). The models' own become views of them and stay equal."""
    names = [name for name, _ in models[0].named_parameters()]
    stacks = {name: torch.stack([model.get_parameter(name).detach() for model in models]) for name in names}
    for place, model in enumerate(models):
        for name, stack in stacks.items():
            model.get_parameter(name).data = stack[place]
    return {name: stack.requires_grad_() for name, stack in stacks.items()}
