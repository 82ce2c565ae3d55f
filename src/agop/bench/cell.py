"""Cells: train with the hook, explain, score; each into a folder that is there only when it is whole."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor

from agop import scenarios
from agop.bench.spec import Cell, RunSpec
from agop.bench.training import Task, Trained, accuracy, train
from agop.errors import AGOPWarning
from agop.evaluating import Evaluation, evaluate
from agop.explaining import explain
from agop.files import write_whole
from agop.metrics import get as metric
from agop.scenarios import Split
from agop.scenarios.base import Splits
from agop.statistic import AGOP

_CONVERGING = (("agop-global", "agop-weighted"), ("iou", "energy", "average_precision"))
# The share of training in the time of a cell.
_TRAINING = 0.6
Progress = Callable[[float], None]


def run_cells(spec: RunSpec, cells: Sequence[Cell], folder: Path, progress: Progress) -> None:
    """Compute cells of one scenario and background into folder/cells/NAME, their networks trained together.

    Threads: one, so that the rows do not depend on the machine's load.
    """
    torch.set_num_threads(1)
    scenario = scenarios.get(cells[0].scenario)
    parts = [folder / "cells" / f".{cell.name}.part" for cell in cells]
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
    data = [scenario.splits(cell.background, cell.seed, spec.masks) for cell in cells]
    tasks = [
        Task(cell.seed, training, validation, part / "snapshots")
        for cell, part, (training, validation, _) in zip(cells, parts, data, strict=True)
    ]
    pupils = train(scenario, tasks, spec.epochs, lambda done: progress(_TRAINING * done))
    for place, (cell, part, trained, splits) in enumerate(zip(cells, parts, pupils, data, strict=True)):
        _score(spec, cell, part, trained, splits)
        part.rename(folder / "cells" / cell.name)
        progress(_TRAINING + (1 - _TRAINING) * (place + 1) / len(cells))


def _score(spec: RunSpec, cell: Cell, part: Path, trained: Trained, splits: Splits) -> None:
    """Explain and score a trained network, and write everything of its cell."""
    scenario, (_, validation, test) = scenarios.get(cell.scenario), splits
    test = Split(test.images[: spec.test_images], test.labels[: spec.test_images], test.masks[: spec.test_images])
    trained.prior.save(part / "agop.safetensors")
    _write_tensors(part / "checkpoint.safetensors", trained.model.state_dict())
    with warnings.catch_warnings():
        # The coarse map of the paper's GradCAM and snapshots of other weights are what is measured here.
        warnings.simplefilter("ignore", AGOPWarning)
        scored = evaluate(
            trained.model, test.images, test.masks, spec.methods, trained.prior, spec.metrics, layer=scenario.layer,
            signed=spec.masks == "signed",
        )  # fmt: skip
        _write_lines(part / "convergence.jsonl", _convergence(spec, cell, trained, validation, part / "snapshots"))
    _write_lines(part / "rows.jsonl", _rows(cell, scored, accuracy(trained.model, test), len(test)))
    timings = [_row(cell, name, "milliseconds", ms, len(test)) for name, ms in scored.milliseconds.items()]
    _write_lines(part / "timings.jsonl", timings)
    _write_tensors(
        part / "scores.safetensors",
        {f"{m}/{k}": v.contiguous() for m, found in scored.scores.items() for k, v in found.items()},
    )


def _convergence(spec: RunSpec, cell: Cell, trained: Trained, data: Split, snapshots: Path) -> Iterator[dict[str, Any]]:
    """The quality of the AGOP methods on validation data at each snapshot, with the weights of that step."""
    model = trained.model
    final = {name: value.clone() for name, value in model.state_dict().items()}
    for path in sorted(snapshots.glob("step-*.safetensors")):
        prior = AGOP.load(path)
        step = int(prior.provenance["steps"])
        moment = trained.history[step]
        model.load_state_dict(moment.weights)
        yield {"step": step, **_row(cell, "model", "accuracy", moment.accuracy, len(data))}
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


def _write_lines(path: Path, rows: Any) -> None:
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    write_whole(path, bytes_from_tensors(tensors))
