"""Train the networks of a bench, with the hook, one by one or stacked."""

from __future__ import annotations

import io
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from agop.bench.scenarios import Recipe, Scenario, Split
from agop.collect.hook import AGOPTrainingHook
from agop.evaluation.scoring import accuracy
from agop.io import write_atomically
from agop.model.outputs import predicted
from agop.model.probe import Gradients, derivative
from agop.prior.agop import AGOP
from agop.report.folder import Row

CHECKPOINT = "training.pt"
# Networks that haven't learned by this share of their epochs start again.
_JUDGED = 0.4
# Steps between two reports of the progress.
_REPORT_EVERY = 5
# In a stack, a kill loses at most this much training, plus one epoch.
CHECKPOINT_SECONDS = 20.0
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What one network learns: its scenario, seed, data and folder; `watch` gives the rows of a snapshot."""

    scenario: Scenario
    seed: int
    training: Split
    validation: Split
    folder: Path
    watch: Callable[[nn.Module, AGOP], list[Row]] = lambda model, prior: []
    rank: int = 0  # rows of the prior's sketch


def train(
    tasks: Sequence[Task], epochs: int, progress: Callable[[float], None], restarts: int | None = None
) -> list[TrainingRun]:
    """Train one network per task by its scenario's recipe, together if the network class supports it.

    A network whose validation accuracy is below the scenario's threshold after some epochs is trained again from
    another initialization, at most `restarts` times. None: the threshold isn't used. With 0 epochs, networks keep
    their random weights.
    """
    runs = [TrainingRun(task) for task in tasks]
    if epochs == 0:
        return runs
    judged = epochs if restarts is None else min(epochs, math.ceil(_JUDGED * epochs))
    waiting = runs
    while waiting and restarts is not None:
        attempt = min(len(run.failed) for run in waiting)
        for done in _train_all(waiting, epochs, judged):
            progress(_JUDGED * (1 - 0.5 ** (attempt + done)))  # the number of restarts isn't known in advance
        waiting = [run for run in waiting if not run.learned and len(run.failed) < restarts]
        for run in waiting:
            run.restart()
    for done in _train_all(runs, epochs, epochs):
        progress(done if restarts is None else _JUDGED + (1 - _JUDGED) * done)
    return runs


def stack_key(scenario: Scenario) -> object | None:
    """Networks of scenarios with the same key train as one stack. None: each network trains alone."""
    recipe = scenario.recipe
    plain = not recipe.flips and not recipe.best and recipe.schedule == "cosine"
    return (scenario.network, recipe) if plain and hasattr(scenario.network, "stacked_forward") else None


def _train_all(runs: Sequence[TrainingRun], epochs: int, until: int) -> Iterator[float]:
    """Train all networks up to an epoch, those of one key and epoch together, and yield the fraction done."""
    stacks: dict[object, list[TrainingRun]] = {}
    for run in runs:
        stacks.setdefault((stack_key(run.task.scenario) or id(run), run.epoch), []).append(run)
    done = 0
    for stack in stacks.values():
        alone = stack_key(stack[0].task.scenario) is None
        for fraction in train_epochs(stack[0], epochs, until) if alone else train_stacked(stack, epochs, until):
            yield (done + len(stack) * fraction) / len(runs)
        done += len(stack)


class TrainingRun:
    """A network of a task, with the weights and rows of its checkpoint `state`, or untrained if there is none.

    `failed` has the accuracy of each attempt that didn't learn the task, `noted` the rows of the snapshots.
    """

    def __init__(self, task: Task) -> None:
        self.task, path = task, task.folder / CHECKPOINT
        self.state: dict[str, Any] = torch.load(path, weights_only=True) if path.exists() else {}
        self.noted: list[Row] = list(self.state.get("noted", ()))
        self._initialize(list(self.state.get("attempts", ())))
        if self.state:
            self.model.load_state_dict(self.state["model"])
            self.hook.load_state_dict(self.state["hook"])

    def _initialize(self, failed: list[float]) -> None:
        """Start from the seed of the task and the number of failed attempts."""
        task, recipe, self.failed = self.task, self.task.scenario.recipe, failed
        torch.manual_seed(task.seed + 1_000_003 * len(failed))
        self.model = task.scenario.network()
        self.hook = AGOPTrainingHook(
            self.model,
            every=recipe.hook_every,
            snapshot_every=recipe.snapshot_every or -(-len(task.training) // recipe.batch),
            snapshot_dir=task.folder / "snapshots",
            per_class=True,
            layer=getattr(task.scenario.network, "patch_layer", None),
            rank=task.rank,
        )

    @property
    def epoch(self) -> int:
        """The next epoch to train."""
        return int(self.state.get("epoch", 0))

    def order(self, epoch: int) -> torch.Generator:
        """Random generator of an epoch, from the seed and the epoch alone."""
        return torch.Generator().manual_seed(self.task.seed * 100_003 + epoch)

    def note(self) -> None:
        """Append the rows of this step, if it has a snapshot."""
        if self.hook.steps % self.hook.snapshot_every == 0 and self.hook.count:
            rows = self.task.watch(self.model, self.hook.finalize(tune=False))
            self.noted += [{"step": self.hook.steps, **row} for row in rows]

    def write(self, **more: Any) -> None:
        """Write a checkpoint with the state of the loop: epoch, optimizer, schedule, and what else it needs."""
        own = {"model": self.model.state_dict(), "hook": self.hook.state_dict()}
        self.state = own | {"attempts": self.failed, "noted": self.noted} | more
        buffer = io.BytesIO()
        torch.save(self.state, buffer)
        write_atomically(self.task.folder / CHECKPOINT, buffer.getvalue())

    def accuracy(self) -> float:
        """Accuracy on the validation data."""
        return accuracy(self.model, self.task.validation.images, self.task.validation.labels)

    @property
    def learned(self) -> bool:
        """True if the accuracy reaches the scenario's threshold."""
        return self.accuracy() >= self.task.scenario.learned

    def restart(self) -> None:
        """Start again from another initialization, after an attempt that didn't learn the task."""
        shutil.rmtree(self.task.folder, ignore_errors=True)  # snapshots and checkpoint of this attempt
        self.noted, self.state = [], {}
        self._initialize([*self.failed, self.accuracy()])

    @property
    def attempts(self) -> tuple[float, ...]:
        """The accuracy of each attempt. The last one counts, the others didn't learn the task."""
        return *self.failed, self.accuracy()

    @property
    def prior(self) -> AGOP | None:
        """The statistic of the training; None if the network wasn't trained."""
        return self.hook.finalize() if self.hook.steps else None


def optimizer_for(parameters: list[Tensor], recipe: Recipe, epochs: int, steps: int) -> tuple[Optimizer, LRScheduler]:
    """The recipe's optimizer and schedule, for `steps` per epoch."""
    kind = {"adam": Adam, "adamw": AdamW}[recipe.optimizer]
    # foreach: same arithmetic for every element, whatever its position in a stack; the fused kernel differs.
    optimizer = kind(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, foreach=True)
    if recipe.schedule == "one-cycle":
        return optimizer, OneCycleLR(optimizer, recipe.learning_rate, epochs=epochs, steps_per_epoch=steps)
    return optimizer, CosineAnnealingLR(optimizer, epochs)


def train_epochs(run: TrainingRun, epochs: int, until: int) -> Iterator[float]:
    """Train a network up to epoch `until` of `epochs` and yield the fraction done.

    After the last epoch, the model has the weights of that epoch or, if the recipe says so, of the best one.
    """
    model, data, recipe = run.model, run.task.training, run.task.scenario.recipe
    steps = -(-len(data) // recipe.batch)
    optimizer, schedule = optimizer_for(list(model.parameters()), recipe, epochs, steps)
    if run.state:
        optimizer.load_state_dict(run.state["optimizer"])
        schedule.load_state_dict(run.state["schedule"])
    best = dict(run.state.get("best", {}))
    for epoch in range(run.epoch, until):
        order = run.order(epoch)
        torch.manual_seed(order.initial_seed())  # for dropout
        for step, rows in enumerate(torch.split(torch.randperm(len(data), generator=order), recipe.batch)):
            images, labels = data.images[rows], data.labels[rows]
            if recipe.flips:
                mirrored = torch.rand(len(images), generator=order) < 0.5
                images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
            model.train()
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(images), labels))
            run.hook.step(images, labels)
            optimizer.step()
            if recipe.schedule == "one-cycle":
                schedule.step()
            run.note()
            if step % _REPORT_EVERY == 0:
                yield (epoch + step / steps) / until
        if recipe.schedule != "one-cycle":
            schedule.step()
        if recipe.best and (score := run.accuracy()) > best.get("accuracy", -1.0):  # the first one wins a tie
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            best = {"accuracy": score, "weights": weights}
        run.write(epoch=epoch + 1, best=best, optimizer=optimizer.state_dict(), schedule=schedule.state_dict())
        yield (epoch + 1) / until
    if best and until == epochs:
        model.load_state_dict(best["weights"])
    model.eval()


def train_stacked(runs: Sequence[TrainingRun], epochs: int, until: int) -> Iterator[float]:
    """Like `train_epochs` for each network, but all share one forward pass and two backward passes per step.

    They are of one class, which has a `stacked_forward`, and of one recipe with the cosine schedule. `torch.func` (vmap
    of grad) takes 2.1 times as long for ten CNN8by8 with batches of 64, 3.8 times with 128, and has other last bits.
    """
    network: Any = runs[0].task.scenario.network
    recipe = runs[0].task.scenario.recipe
    weights = stacked([run.model for run in runs])
    splits = [run.task.training for run in runs]
    images, labels = torch.stack([split.images for split in splits]), torch.stack([split.labels for split in splits])
    which = torch.arange(len(runs))[:, None]
    optimizer, schedule = optimizer_for(list(weights.values()), recipe, epochs, -(-labels.shape[1] // recipe.batch))
    start, written = runs[0].epoch, time.monotonic()
    if start:
        optimizer.load_state_dict(_with_moments([run.state["optimizer"] for run in runs], torch.stack))
        schedule.load_state_dict(runs[0].state["schedule"])
    for epoch in range(start, until):
        orders = torch.stack([torch.randperm(labels.shape[1], generator=run.order(epoch)) for run in runs])
        for rows in torch.split(orders, recipe.batch, dim=1):
            batch, truth = images[which, rows], labels[which, rows]
            gradients = _backward(network, weights, batch, truth)
            for run, *own in zip(runs, gradients, truth, batch, strict=True):
                run.hook.add(*own)
            optimizer.step()
            for run in runs:
                run.note()
        schedule.step()
        if time.monotonic() - written >= CHECKPOINT_SECONDS or epoch + 1 == until:
            for place, run in enumerate(runs):
                own_state = _with_moments([optimizer.state_dict()], lambda stack, place=place: stack[0][place].clone())
                run.write(epoch=epoch + 1, optimizer=own_state, schedule=schedule.state_dict())
            written = time.monotonic()
        yield (epoch + 1) / until


def stacked(models: Sequence[nn.Module]) -> Weights:
    """Parameters of S models, stacked (S,…). The models' own become views of them and stay equal."""
    names = [name for name, _ in models[0].named_parameters()]
    stacks = {name: torch.stack([model.get_parameter(name).detach() for model in models]) for name in names}
    for place, model in enumerate(models):
        for name, stack in stacks.items():
            model.get_parameter(name).data = stack[place]
    return {name: stack.requires_grad_() for name, stack in stacks.items()}


def _with_moments(states: Sequence[dict[str, Any]], change: Callable[..., Tensor]) -> dict[str, Any]:
    """The first of some optimizer states, with moments computed from those of all. They share the step numbers."""
    moments = {
        parameter: {
            name: value if name == "step" else change([state["state"][parameter][name] for state in states])
            for name, value in values.items()
        }
        for parameter, values in states[0]["state"].items()
    }
    return {**states[0], "state": moments}


def _backward(network: Any, weights: Weights, images: Tensor, labels: Tensor) -> list[Gradients]:
    """Set the weights' gradients of each network's mean loss. Returns the gradients of the images per network."""
    leaf = images.flatten(0, 1).requires_grad_()
    outputs: tuple[Tensor, ...] = ()
    if hasattr(network, "patch_outputs"):  # then `stacked_forward` passes on the gradient of the first layer's outputs
        shape = (len(images), *network.patch_outputs, images.shape[1])
        outputs = (images.new_zeros(1).expand(shape).requires_grad_(),)
    logits = network.stacked_forward(weights, leaf.reshape(images.shape), *outputs).flatten(0, 1)
    loss = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / labels.shape[1]
    weight_gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
    for weight, gradient in zip(weights.values(), weight_gradients, strict=True):
        weight.grad = gradient
    targets = predicted(logits.detach())
    values, at_layer = derivative(logits, targets, leaf, outputs[0] if outputs else None)
    # (S,D,P,N) → (N,D,P,1) of each network
    deltas = [] if at_layer is None else [[own.permute(2, 0, 1)[..., None] for own in at_layer]]
    parts = [torch.split(part, labels.shape[1]) for part in (values, logits.detach(), targets)]
    return [Gradients(*own) for own in zip(*parts, *deltas, strict=True)]


class StackOfOne(nn.Module):
    """A network evaluated by its class's `stacked_forward`: the same logits up to rounding, in less time."""

    def __init__(self, model: nn.Module, together: Callable[[Weights, Tensor], Tensor]) -> None:
        super().__init__()
        self.together = together
        self.weights = {name: weight.detach()[None] for name, weight in model.named_parameters()}

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N,K) of images (N,C,H,W)."""
        return self.together(self.weights, images[None])[0]
