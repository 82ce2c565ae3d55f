"""Cells: train with the hook, explain, score. A cell's folder exists only when it's complete."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from agop import metrics, scenarios
from agop.bench.checkpoints import CHECKPOINT
from agop.bench.entries import Entries
from agop.bench.grids import add_grid_scores
from agop.bench.pupil import Task, Trained
from agop.bench.snapshots import snapshot_rows
from agop.bench.stacked import StackOfOne
from agop.bench.train import train
from agop.errors import AGOPWarning
from agop.evaluating.cell_folder import CellScores, gallery, write_tensors
from agop.evaluating.scoring import MethodScores, correct, score
from agop.model.preparing import prepare
from agop.pictures.heat import pixels
from agop.runs.cell_files import PRIOR, WEIGHTS
from agop.runs.gallery import SHOWN
from agop.runs.rows import Row, row
from agop.runs.spec import Cell, RunSpec
from agop.scenarios import Scenario, Split
from agop.scenarios.base import Splits
from agop.statistic.agop import AGOP
from agop.statistic.fitting import fit

# The share of training in a cell's time.
_TRAINING = 0.6
# The share of grids in the time for explaining and scoring.
_GRIDS = 0.5
Progress = Callable[[float], None]


def run_cells(spec: RunSpec, cells: Sequence[Cell], folder: Path, progress: Progress) -> None:
    """Compute cells into folder/cells/NAME; networks of one class and recipe train together."""
    configured = {name: scenarios.get(name).with_options(spec.options) for name in {cell.scenario for cell in cells}}
    torch.set_num_threads(configured[cells[0].scenario].threads)
    parts = [_part_folder(folder, cell) for cell in cells]
    data = [configured[cell.scenario].splits(cell.background, cell.seed, spec.masks) for cell in cells]
    tasks = [
        _task(configured[cell.scenario], spec, cell, part, splits)
        for cell, part, splits in zip(cells, parts, data, strict=True)
    ]
    networks = train(tasks, spec.epochs, lambda done: progress(_TRAINING * done), spec.restarts)
    for place, (cell, task, trained, splits) in enumerate(zip(cells, tasks, networks, data, strict=True)):
        share = (1 - _TRAINING) / len(cells)
        report = _shifted(progress, _TRAINING + share * place, share)
        _write_cell(task.scenario, spec, cell, task.folder, trained, splits, report)
        finished = folder / "cells" / cell.name
        shutil.rmtree(finished, ignore_errors=True)  # not sealed, or this cell wouldn't be computed
        task.folder.rename(finished)
        (finished / CHECKPOINT).unlink(missing_ok=True)


def _task(scenario: Scenario, spec: RunSpec, cell: Cell, folder: Path, splits: Splits) -> Task:
    training, validation, _ = splits
    watch = snapshot_rows(scenario, validation, signed=spec.masks == "signed")
    return Task(scenario, cell.seed, training, validation, folder, watch)


def _shifted(progress: Progress, start: float, share: float) -> Progress:
    return lambda done: progress(start + share * done)


def _part_folder(folder: Path, cell: Cell) -> Path:
    """The folder of an unfinished cell, emptied unless it has a checkpoint to resume from."""
    part = folder / "cells" / f".{cell.name}.part"
    if not (part / CHECKPOINT).exists():
        shutil.rmtree(part, ignore_errors=True)
    return part


def _write_cell(
    scenario: Scenario,
    spec: RunSpec,
    cell: Cell,
    part: Path,
    trained: Trained,
    splits: Splits,
    progress: Progress,
) -> None:
    """Explain and score a trained network, and write every file of its cell."""
    training, _, test = splits
    hits = correct(trained.model, test.images, test.labels)
    test = test.first(spec.test_images)
    priors = _priors(scenario, trained, training)
    for kind, prior in priors.items():
        prior.save(part / (PRIOR if kind == scenario.prior else f"agop-{kind}.safetensors"))
    write_tensors(part / WEIGHTS, trained.model.state_dict())
    scores = CellScores(rows=list(_facts(spec, trained, splits, hits)))
    scores.samples[f"{spec.masks}/model/correct"] = hits[: len(test)].float()
    with warnings.catch_warnings():
        # The paper's GradCAM map is coarse on purpose.
        warnings.simplefilter("ignore", AGOPWarning)
        entries = Entries(scenario, training, priors, cell)
        for name in spec.methods:
            if reason := entries.unusable(name):
                scores.skip(name, _metrics_by_kind(spec, test), reason, len(test))
        model = prepare(trained.model, keep=entries.layers((*spec.methods, *spec.sensitivity)))
        results = _results(spec, entries, model, _scorer(scenario, trained.model, model), test)
        share = 1 - _GRIDS if scenario.grids else 1.0
        for number, result in enumerate(results, 1):
            scores.add(result)
            progress(share * number / (len(spec.methods) + len(spec.sensitivity)))
        add_grid_scores(scores, spec, entries, model, splits[2], _shifted(progress, share, 1 - share))
    few = test.first(SHOWN)
    pictures = pixels(few.images, scenario.black, scenario.white)
    gallery(trained.model, few.images, pictures, few.by_kind(spec.masks), scores.maps, few.labels).save(part)
    scores.write(part, cell, trained.noted)


def _priors(scenario: Scenario, trained: Trained, training: Split) -> dict[str, AGOP]:
    """The prior collected while training and, if the scenario uses it, the one of the final checkpoint.

    That of a network with random weights counts all samples: it predicts few of them correctly.
    """
    batches = list(zip(torch.split(training.images, 64), torch.split(training.labels, 64), strict=True))
    if trained.prior is None:
        return {scenario.prior: fit(trained.model, batches, only_correct=False, per_class=True, progress=False)}
    if scenario.prior == "training":
        return {"training": trained.prior}
    return {"training": trained.prior, "checkpoint": fit(trained.model, batches, per_class=True, progress=False)}


def _scorer(scenario: Scenario, model: nn.Module, prepared: nn.Module) -> nn.Module:
    """The fastest form of the network, for metrics that need many forward passes."""
    together = getattr(scenario.network, "stacked_forward", None)
    return prepared if together is None else StackOfOne(model, together)


def _results(
    spec: RunSpec, entries: Entries, model: nn.Module, scorer: nn.Module, test: Split
) -> Iterator[MethodScores]:
    """Scores of all methods on the test data, then of the sensitivity variants on fewer images."""
    every = [metrics.get(name) for name in spec.metrics]
    of_maps = [metric for metric in every if not metric.needs_model]
    few = test.first(spec.sensitivity_images)
    for names, data, selected in ((spec.methods, test, every), (spec.sensitivity, few, of_maps)):
        pairs = ((name, entries.entry(name)) for name in names if not entries.unusable(name))
        yield from score(
            model, data.images, data.by_kind(spec.masks), pairs, selected,
            range(min(SHOWN, len(data))), signed=spec.masks == "signed", steps=spec.steps,
            scorer=scorer, references=entries.training.images,
        )  # fmt: skip


def _metrics_by_kind(spec: RunSpec, test: Split) -> dict[str, list[str]]:
    """Names of the metrics by kind of masks; those that query the model are beside the main kind only."""
    of_maps = [name for name in spec.metrics if not metrics.get(name).needs_model]
    return {kind: list(spec.metrics) if kind == spec.masks else of_maps for kind in test.by_kind(spec.masks)}


def _facts(spec: RunSpec, trained: Trained, splits: Splits, hits: Tensor) -> Iterator[Row]:
    """Accuracy on all test data, what the attempts to train gave, and the share of pixels in each kind of mask."""
    training, validation, _ = splits
    yield {"masks": spec.masks, **row("model", "accuracy", float(hits.double().mean()), len(hits))}
    if spec.restarts is not None:
        yield {"masks": spec.masks, **row("model", "first_accuracy", trained.attempts[0], len(validation))}
        yield {"masks": spec.masks, **row("model", "attempts", len(trained.attempts), 1)}
        yield {"masks": spec.masks, **row("model", "learned", float(trained.learned), 1)}
    for kind, masks in training.by_kind(spec.masks).items():
        covered = float((masks != 0).double().mean())
        yield {"masks": kind, **row("masks", "coverage", covered, len(training))}
