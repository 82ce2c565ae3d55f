"""Several networks trained at once: a step over stacked weights costs little more than a step of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from agop.bench.pupil import Pupil, optimizer_for
from agop.errors import InputError
from agop.model.probe import Gradients, derivative
from agop.model.targets import predicted
from agop.scenarios import Recipe

Weights = dict[str, Tensor]
Together = Callable[[Weights, Tensor], Tensor]


def train_stacked(pupils: Sequence[Pupil], together: Together, recipe: Recipe, epochs: int) -> Iterator[float]:
    """As `taught` for each, but a step is one forward pass of all, and backward once to weights, once to images."""
    if recipe.flips or recipe.best or recipe.schedule != "cosine":
        raise InputError("networks that train together keep to the cosine schedule, without flips or a best epoch")
    weights = stacked([pupil.model for pupil in pupils])
    splits = [pupil.task.training for pupil in pupils]
    images, labels = torch.stack([split.images for split in splits]), torch.stack([split.labels for split in splits])
    which = torch.arange(len(pupils))[:, None]
    optimizer, schedule = optimizer_for(list(weights.values()), recipe, epochs, -(-labels.shape[1] // recipe.batch))
    for epoch in range(epochs):
        orders = torch.stack([torch.randperm(labels.shape[1], generator=pupil.order(epoch)) for pupil in pupils])
        for rows in torch.split(orders, recipe.batch, dim=1):
            truth = labels[which, rows]
            found = _backward(together, weights, images[which, rows], truth)
            for pupil, gradients, right in zip(pupils, found, truth, strict=True):
                pupil.hook.add(gradients, right)
            optimizer.step()
            for pupil in pupils:
                pupil.note()
        schedule.step()
        yield (epoch + 1) / epochs


def _backward(together: Together, weights: Weights, images: Tensor, labels: Tensor) -> list[Gradients]:
    """Set the weights' gradients of the mean loss of each network, and give the images' gradients."""
    leaf = images.flatten(0, 1).requires_grad_()
    logits = together(weights, leaf.reshape(images.shape)).flatten(0, 1)
    loss = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / labels.shape[1]
    found = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
    for weight, gradient in zip(weights.values(), found, strict=True):
        weight.grad = gradient
    targets = predicted(logits.detach())
    parts = (derivative(logits, targets, leaf), logits.detach(), targets)
    return [Gradients(*part) for part in zip(*(torch.split(p, labels.shape[1]) for p in parts), strict=True)]


def stacked(models: Sequence[nn.Module]) -> Weights:
    """The models' parameters stacked (S,…); theirs become views of these, so that both are always the same."""
    names = [name for name, _ in models[0].named_parameters()]
    stacks = {name: torch.stack([model.get_parameter(name).detach() for model in models]) for name in names}
    for place, model in enumerate(models):
        for name, stack in stacks.items():
            model.get_parameter(name).data = stack[place]
    return {name: stack.requires_grad_() for name, stack in stacks.items()}
