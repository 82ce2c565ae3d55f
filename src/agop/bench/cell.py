"""Cells: train with the hook, explain, score; each into a folder that is there only when it is whole."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from agop import scenarios
from agop.bench.entries import Entries
from agop.bench.epochs import CHECKPOINT
from agop.bench.pupil import Task, Trained
from agop.bench.scoring import row, score, watched
from agop.bench.train import train
from agop.errors import AGOPWarning
from agop.evaluating.cell_folder import gallery, write_tensors
from agop.evaluating.scoring import accuracy
from agop.model.preparing import prepare
from agop.pictures.heat import pixels
from agop.runs.gallery import SHOWN
from agop.runs.rows import Row
from agop.runs.spec import Cell, RunSpec
from agop.scenarios import Scenario, Split
from agop.scenarios.base import Splits
from agop.statistic.agop import AGOP
from agop.statistic.fitting import fit

# The share of training in the time of a cell.
_TRAINING = 0.6
Progress = Callable[[float], None]


def run_cells(spec: RunSpec, cells: Sequence[Cell], folder: Path, progress: Progress) -> None:
    """Compute cells of one scenario and background into folder/cells/NAME, their networks trained together."""
    scenario = scenarios.get(cells[0].scenario).with_options(spec.options)
    torch.set_num_threads(scenario.threads)
    parts = [_part(folder, cell) for cell in cells]
    data = [scenario.splits(cell.background, cell.seed, spec.masks) for cell in cells]
    tasks = [
        Task(cell.seed, training, validation, part, _watcher(scenario, spec, validation))
        for cell, part, (training, validation, _) in zip(cells, parts, data, strict=True)
    ]
    pupils = train(scenario, tasks, spec.epochs, lambda done: progress(_TRAINING * done))
    for place, (cell, part, trained, splits) in enumerate(zip(cells, parts, pupils, data, strict=True)):
        share = (1 - _TRAINING) / len(cells)
        _score(scenario, spec, cell, part, trained, splits, _shifted(progress, _TRAINING + share * place, share))
        done = part.rename(folder / "cells" / cell.name)
        (done / CHECKPOINT).unlink(missing_ok=True)


def _shifted(progress: Progress, begun: float, share: float) -> Progress:
    return lambda done: progress(begun + share * done)


def _part(folder: Path, cell: Cell) -> Path:
    """The folder in which a cell is computed; what a killed training left there is kept if it can go on from it."""
    part = folder / "cells" / f".{cell.name}.part"
    if not (part / CHECKPOINT).exists():
        shutil.rmtree(part, ignore_errors=True)
    return part


def _watcher(scenario: Scenario, spec: RunSpec, validation: Split) -> Callable[[nn.Module, AGOP], list[Row]]:
    few = validation.first(scenario.snapshot_images)

    def watch(model: nn.Module, prior: AGOP) -> list[Row]:
        right = row("model", "accuracy", accuracy(model, validation.images, validation.labels), len(validation))
        return [right, *watched(model, prior, few, spec.masks == "signed")]

    return watch


def _score(
    scenario: Scenario,
    spec: RunSpec,
    cell: Cell,
    part: Path,
    trained: Trained,
    splits: Splits,
    progress: Progress,
) -> None:
    """Explain and score a trained network, and write everything of its cell."""
    training, _, test = splits
    test = test.first(spec.test_images)
    priors = {"training": trained.prior}
    if scenario.prior == "checkpoint":
        batches = zip(torch.split(training.images, 64), torch.split(training.labels, 64), strict=True)
        priors["checkpoint"] = fit(trained.model, batches, per_class=True, progress=False)
    for kind, prior in priors.items():
        prior.save(part / ("agop.safetensors" if kind == scenario.prior else f"agop-{kind}.safetensors"))
    write_tensors(part / "checkpoint.safetensors", trained.model.state_dict())
    with warnings.catch_warnings():
        # The coarse map of the paper's GradCAM is what is measured here.
        warnings.simplefilter("ignore", AGOPWarning)
        found = score(spec, Entries(scenario, training, priors), prepare(trained.model), test, progress)
    found.rows[:0] = _facts(spec, trained, splits)
    found.write(part, cell, trained.noted)
    few = test.first(SHOWN)
    shown = pixels(few.images, scenario.black, scenario.white)
    gallery(trained.model, few.images, shown, few.by_kind(spec.masks), found.maps, few.labels).save(part)


def _facts(spec: RunSpec, trained: Trained, splits: Splits) -> Iterator[Row]:
    """The model's accuracy on the test data, all of it, and the share of pixels that each kind of mask covers."""
    training, _, test = splits
    right = accuracy(trained.model, test.images, test.labels)
    yield {"masks": spec.masks, "method": "model", "metric": "accuracy", "value": right, "n": len(test)}
    for kind, masks in training.by_kind(spec.masks).items():
        share = float((masks != 0).double().mean())
        yield {"masks": kind, "method": "masks", "metric": "coverage", "value": share, "n": len(training)}
