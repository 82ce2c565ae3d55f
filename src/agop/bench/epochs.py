"""Training of one network with a checkpoint after each epoch: a killed training resumes from there."""

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
_REPORT_EVERY = 5


def train_epochs(pupil: Pupil, recipe: Recipe, epochs: int) -> Iterator[float]:
    """Train a network and yield the fraction done. The model ends with the weights of the last or the best epoch."""
    model, data = pupil.model, pupil.task.training
    steps = -(-len(data) // recipe.batch)
    optimizer, schedule = optimizer_for(list(model.parameters()), recipe, epochs, steps)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "hook": pupil.hook}
    start, best = _resume(pupil, parts)
    for epoch in range(start, epochs):
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
    """Images (N,C,H,W), a random half of them mirrored."""
    mirrored = torch.rand(len(images), generator=order) < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def _better(best: dict[str, Any], pupil: Pupil) -> dict[str, Any]:
    """Accuracy and weights of the best epoch so far; the first one wins a tie."""
    validation = pupil.task.validation
    score = accuracy(pupil.model, validation.images, validation.labels)
    if best and score <= best["accuracy"]:
        return best
    return {"accuracy": score, "weights": {name: value.clone() for name, value in pupil.model.state_dict().items()}}


def _write(pupil: Pupil, parts: dict[str, Any], epoch: int, best: dict[str, Any]) -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    buffer = io.BytesIO()
    torch.save({"epoch": epoch, "best": best, "noted": pupil.noted, **state}, buffer)
    write_atomically(pupil.task.folder / CHECKPOINT, buffer.getvalue())


def _resume(pupil: Pupil, parts: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Load the checkpoint. Returns the next epoch and the best one so far; (0, {}) without a readable checkpoint."""
    path = pupil.task.folder / CHECKPOINT
    if not path.exists():
        return 0, {}
    try:
        state = torch.load(io.BytesIO(read_bytes(path)), weights_only=True)
        start, best, noted = int(state["epoch"]), dict(state["best"]), list(state["noted"])
        states = {name: state[name] for name in parts}
    except (FileError, RuntimeError, UnpicklingError, EOFError, ValueError, KeyError, TypeError) as error:
        warn(f"{path} can't be read, the training starts again: {error}")
        return 0, {}
    for name, part in parts.items():
        part.load_state_dict(states[name])
    pupil.noted[:] = noted
    return start, best
