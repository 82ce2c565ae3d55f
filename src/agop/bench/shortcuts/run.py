"""All models of a run: train, measure, detect; in parallel processes. Finished models are never computed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path

import torch

from agop.bench.shortcuts.detectors import by_audit, by_reading
from agop.bench.shortcuts.models import measured_place, measured_use, trained_model
from agop.errors import ModelError
from agop.runs.shortcuts import ModelResult, ShortcutSpec, model_file, write_result
from agop.scenarios.shortcuts.task import Case, Source, planted_task
from agop.system.progress import track
from agop.system.workers import run_tasks

# The share of training in the time of a model.
_TRAINING = 0.5


def cases(
    kinds: Sequence[str], prevalences: Sequence[str], strengths: Sequence[str], seeds: Sequence[int]
) -> list[Case]:
    """Every kind, strength and prevalence, and clean models. Only a confounder has several strengths."""
    listed = []
    for seed, kind in product(seeds, kinds):
        if kind == "clean":
            listed.append(Case(kind, "none", "strong", seed))
            continue
        for prevalence in prevalences:
            used = strengths if prevalence == "confounder" else strengths[:1]
            listed += [Case(kind, prevalence, strength, seed) for strength in used]
    return listed


def source_of(spec: ShortcutSpec) -> Source:
    """Where the images of a run come from."""
    return Source(spec.data, spec.side, spec.classes, spec.samples, spec.labels)


def run_models(spec: ShortcutSpec, listed: Sequence[Case], folder: Path, jobs: int) -> None:
    """Compute the missing models in `jobs` processes."""
    missing = {case.name: case for case in listed if not model_file(folder, case.name).exists()}
    if not missing:
        return
    with closing(run_tasks(partial(_work, spec, folder), missing, jobs)) as reports:
        finished = (name for name, fraction in reports if fraction == 1)
        for _ in track(finished, "models", total=len(missing)):
            pass
    shutil.rmtree(folder / "training", ignore_errors=True)


def _work(spec: ShortcutSpec, folder: Path, case: Case, progress: Callable[[float], None]) -> None:
    """In a worker: one model."""
    torch.set_num_threads(1)
    source = source_of(spec)
    task = planted_task(case, source)
    part = folder / "training" / case.name
    trained = trained_model(case, source, task, part, spec.epochs, lambda done: progress(_TRAINING * done))
    use = measured_use(trained.model, task)
    if trained.prior is None:
        raise ModelError(f"{case.name} has no prior: train for one epoch at least")
    detection, sentences = by_audit(trained.model, task, trained.prior)
    detections = {"audit": detection}
    for name in spec.detectors:
        if name != "audit":
            detections[name] = by_reading(name, trained.model, task, trained.prior)
    place = measured_place(trained.model, task, trained.prior)
    result = ModelResult(**asdict(case), **asdict(use), **asdict(place), detections=detections, findings=sentences)
    write_result(folder, case.name, result)
    shutil.rmtree(part, ignore_errors=True)
