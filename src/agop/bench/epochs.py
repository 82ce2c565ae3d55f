"""Training of one network with a checkpoint after each epoch: a killed training resumes from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from agop.bench.pupil import Pupil, optimizer_for
from agop.scenarios import Recipe

_REPORT_EVERY = 5


def train_epochs(pupil: Pupil, recipe: Recipe, epochs: int, until: int) -> Iterator[float]:
    """Train a network up to epoch `until` of `epochs` and yield the fraction done.

    After the last epoch, the model has the weights of that epoch or, if the recipe says so, of the best one.
    """
    model, data = pupil.model, pupil.task.training
    steps = -(-len(data) // recipe.batch)
    optimizer, schedule = optimizer_for(list(model.parameters()), recipe, epochs, steps)
    parts: dict[str, Any] = {"optimizer": optimizer, "schedule": schedule}
    state = pupil.state or {}
    for name, part in parts.items() if state else ():
        part.load_state_dict(state[name])
    best = dict(state.get("best", {}))
    for epoch in range(pupil.epoch, until):
        order = pupil.order(epoch)
        torch.manual_seed(order.initial_seed())  # for dropout
        for step, rows in enumerate(torch.split(torch.randperm(len(data), generator=order), recipe.batch)):
            images, labels = (
                _mirrored(data.images[rows], order) if recipe.flips else data.images[rows],
                data.labels[rows],
            )
            model.train()
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(images), labels))
            pupil.hook.step(images, labels)
            optimizer.step()
            if recipe.schedule == "one-cycle":
                schedule.step()
            pupil.note()
            if step % _REPORT_EVERY == 0:
                yield (epoch + step / steps) / until
        if recipe.schedule != "one-cycle":
            schedule.step()
        if recipe.best:
            best = _better(best, pupil)
        pupil.write(epoch=epoch + 1, best=best, **{name: part.state_dict() for name, part in parts.items()})
        yield (epoch + 1) / until
    if best and until == epochs:
        model.load_state_dict(best["weights"])
    model.eval()


def _mirrored(images: Tensor, order: torch.Generator) -> Tensor:
    """Images (N,C,H,W), a random half of them mirrored."""
    mirrored = torch.rand(len(images), generator=order) < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def _better(best: dict[str, Any], pupil: Pupil) -> dict[str, Any]:
    """Accuracy and weights of the best epoch so far; the first one wins a tie."""
    score = pupil.accuracy()
    if best and score <= best["accuracy"]:
        return best
    return {"accuracy": score, "weights": {name: value.clone() for name, value in pupil.model.state_dict().items()}}
