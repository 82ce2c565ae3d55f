"""One cell: train with the hook, explain, score; into a folder that is there only when it is whole."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop import scenarios
from agop.bench.spec import Cell, RunSpec
from agop.errors import AGOPWarning
from agop.evaluating import Evaluation, evaluate
from agop.explaining import explain
from agop.files import write_whole
from agop.metrics import get as metric
from agop.scenarios import Scenario, Split
from agop.statistic import AGOP
from agop.training import AGOPTrainingHook

SNAPSHOT_EVERY = 100
_CONVERGING = (("agop-global", "agop-weighted"), ("iou", "energy", "average_precision"))
Progress = Callable[[float], None]


def run_cell(spec: RunSpec, cell: Cell, folder: Path, progress: Progress) -> None:
    """Compute a cell into folder/cells/NAME. Threads: one, so that the rows do not depend on the machine's load."""
    torch.set_num_threads(1)
    done = folder / "cells" / cell.name
    part = done.with_name(f".{cell.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    scenario = scenarios.get(cell.scenario)
    training, validation, test = scenario.splits(cell.background, cell.seed, spec.masks)
    test = Split(test.images[: spec.test_images], test.labels[: spec.test_images], test.masks[: spec.test_images])
    model, prior, history = _train(scenario, cell, spec, training, validation, part / "snapshots", progress)
    prior.save(part / "agop.safetensors")
    _write_tensors(part / "checkpoint.safetensors", model.state_dict())
    with warnings.catch_warnings():
        # The coarse map of the paper's GradCAM and snapshots of other weights are what is measured here.
        warnings.simplefilter("ignore", AGOPWarning)
        scored = evaluate(
            model, test.images, test.masks, spec.methods, prior, spec.metrics, layer=scenario.layer,
            signed=spec.masks == "signed",
        )  # fmt: skip
        _write_lines(
            part / "convergence.jsonl", _convergence(cell, model, validation, part / "snapshots", history, spec)
        )
    accuracy = _accuracy(model, test)
    _write_lines(part / "rows.jsonl", _rows(cell, scored, accuracy, len(test)))
    timings = [_row(cell, name, "milliseconds", ms, len(test)) for name, ms in scored.milliseconds.items()]
    _write_lines(part / "timings.jsonl", timings)
    _write_tensors(
        part / "scores.safetensors",
        {f"{m}/{k}": v.contiguous() for m, found in scored.scores.items() for k, v in found.items()},
    )
    part.rename(done)


def _train(
    scenario: Scenario,
    cell: Cell,
    spec: RunSpec,
    training: Split,
    validation: Split,
    snapshots: Path,
    progress: Progress,
) -> tuple[nn.Module, AGOP, dict[int, dict[str, Any]]]:
    """The trained network, its statistic, and the weights and accuracy at each snapshot."""
    torch.manual_seed(cell.seed)
    recipe, model = scenario.recipe, scenario.network()
    optimizer = torch.optim.Adam(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, spec.epochs)
    hook = AGOPTrainingHook(model, snapshot_every=SNAPSHOT_EVERY, snapshot_dir=snapshots)
    history: dict[int, dict[str, Any]] = {}
    for epoch in range(spec.epochs):
        for rows in torch.split(torch.randperm(len(training)), recipe.batch):
            images, labels = training.images[rows], training.labels[rows]
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            hook.step(images, labels)
            if hook.steps % SNAPSHOT_EVERY == 0:
                weights = {name: value.clone() for name, value in model.state_dict().items()}
                history[hook.steps] = {"accuracy": _accuracy(model, validation), "weights": weights}
        schedule.step()
        progress((epoch + 1) / spec.epochs)
    return model, hook.finalize(), history


def _convergence(
    cell: Cell, model: nn.Module, data: Split, snapshots: Path, history: dict[int, dict[str, Any]], spec: RunSpec
) -> Iterator[dict[str, Any]]:
    """The quality of the AGOP methods on validation data at each snapshot, with the weights of that step."""
    final = {name: value.clone() for name, value in model.state_dict().items()}
    for path in sorted(snapshots.glob("step-*.safetensors")):
        prior = AGOP.load(path)
        step = int(prior.provenance["steps"])
        model.load_state_dict(history[step]["weights"])
        yield {"step": step, **_row(cell, "model", "accuracy", history[step]["accuracy"], len(data))}
        for method in _CONVERGING[0]:
            maps = explain(model, data.images, method, prior)
            for name in _CONVERGING[1]:
                scores = metric(name)(maps, data.masks, signed=spec.masks == "signed")
                defined = scores[~scores.isnan()]
                value = float(defined.mean()) if len(defined) else None
                yield {"step": step, **_row(cell, method, name, value, len(defined))}
    model.load_state_dict(final)


def _rows(cell: Cell, scored: Evaluation, accuracy: float, samples: int) -> Iterator[dict[str, Any]]:
    yield _row(cell, "model", "accuracy", accuracy, samples)
    for row in scored.rows():
        yield _row(cell, row["method"], row["metric"], row["value"], row["n"]) | {"undefined": row["undefined"]}


def _row(cell: Cell, method: str, metric: str, value: float | None, n: int) -> dict[str, Any]:
    where = {"scenario": cell.scenario, "background": cell.background, "seed": cell.seed}
    return where | {"method": method, "metric": metric, "value": value, "n": n}


def _accuracy(model: nn.Module, data: Split) -> float:
    with torch.no_grad():
        return float((model(data.images).argmax(1) == data.labels).double().mean())


def _write_lines(path: Path, rows: Any) -> None:
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    write_whole(path, bytes_from_tensors(tensors))
