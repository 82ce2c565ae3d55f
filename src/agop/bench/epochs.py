"""One network, epoch by epoch, with a checkpoint after each: a training that was killed goes on from there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from agop.bench.pupil import Pupil, optimizer_for
from agop.errors import FileError, warn
from agop.evaluating.scoring import accuracy
from agop.scenarios import Recipe
from agop.system.files import read_bytes, write_atomically

CHECKPOINT = "training.pt"
_TELL_EVERY = 5


def train_epochs(pupil: Pupil, recipe: Recipe, epochs: int) -> Iterator[float]:
    """Train a network; yields the share that is done. It ends with the weights of the last or the best epoch."""
    model, data = pupil.model, pupil.task.training
    steps = -(-len(data) // recipe.batch)
    optimizer, schedule = optimizer_for(list(model.parameters()), recipe, epochs, steps)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "hook": pupil.hook}
    begun, best = _resumed(pupil, parts)
    for epoch in range(begun, epochs):
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
            if step % _TELL_EVERY == 0:
                yield (epoch + step / steps) / epochs
        if recipe.schedule != "one-cycle":
            schedule.step()
        if recipe.best:
            best = _better(best, pupil)
        _write(pupil, parts, epoch + 1, best)
        yield (epoch + 1) / epochs
    if best:
        model.load_state_dict(best["weights"])
    model.eval()


def _mirrored(images: Tensor, order: torch.Generator) -> Tensor:
    """Half of the images (N,C,H,W) mirrored."""
    turned = torch.rand(len(images), generator=order) < 0.5
    return torch.where(turned[:, None, None, None], images.flip(3), images)


def _better(best: dict[str, Any], pupil: Pupil) -> dict[str, Any]:
    held = pupil.task.validation
    found = accuracy(pupil.model, held.images, held.labels)
    if best and found <= best["accuracy"]:
        return best
    return {"accuracy": found, "weights": {name: value.clone() for name, value in pupil.model.state_dict().items()}}


def _write(pupil: Pupil, parts: dict[str, Any], epoch: int, best: dict[str, Any]) -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    buffer = io.BytesIO()
    torch.save({"epoch": epoch, "best": best, "noted": pupil.noted, **state}, buffer)
    write_atomically(pupil.task.folder / CHECKPOINT, buffer.getvalue())


def _resumed(pupil: Pupil, parts: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The epoch to go on with and the best so far; the beginning if there is no checkpoint that can be read."""
    path = pupil.task.folder / CHECKPOINT
    if not path.exists():
        return 0, {}
    try:
        state = torch.load(io.BytesIO(read_bytes(path)), weights_only=True)
        begun, best, noted = int(state["epoch"]), dict(state["best"]), list(state["noted"])
        held = {name: state[name] for name in parts}
    except (FileError, RuntimeError, UnpicklingError, EOFError, ValueError, KeyError, TypeError) as error:
        warn(f"{path} cannot be read, the training begins anew: {error}")
        return 0, {}
    for name, part in parts.items():
        part.load_state_dict(held[name])
    pupil.noted[:] = noted
    return begun, best
