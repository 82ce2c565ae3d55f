"""Runs of a bench: a run folder, and its cells in parallel processes: train with the hook, explain, score."""

import math
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop import methods, metrics
from agop.bench import scenarios
from agop.bench.plans import BASELINES, Plan
from agop.bench.scenarios import Scenario, Split
from agop.bench.training import CHECKPOINT, StackOfOne, Task, TrainingRun, stack_key, train
from agop.collect.fit import fit
from agop.errors import AGOPWarning, FileError, InputError, warn
from agop.evaluation.grid import METRICS, cell_scores, make_grids, means_over_cells
from agop.evaluation.scoring import Entry, accuracy, correct, score, summary
from agop.evaluation.table import CellScores, gallery, write_tensors
from agop.explanation import explain
from agop.images.overlays import pixels
from agop.io import file_lock, own_folder
from agop.methods.base import missing_layer, takes_layer
from agop.methods.controls import FIXED_MAPS
from agop.methods.gradients import Baseline, IntegratedGradients
from agop.model.prepare import prepare
from agop.prior.agop import AGOP
from agop.processes import progress_bar, run_tasks
from agop.report import folder as run_files
from agop.report.folder import SHOWN, Cell, Row, RunSpec, row

# Beyond that many networks, training together gains nothing more per network.
_MOST_TOGETHER = 16
# Training images that are the baseline integrated-gradients@training.
_SEVERAL = 5
# Methods and metrics of a snapshot.
_WATCHED, _WATCHED_METRICS = ("agop-global", "agop-weighted"), ("iou", "energy", "average_precision")
# Rows of the sketch, for methods that need one: a quarter of the pixels of 8×8 images.
_SKETCH = 16
# The share of training in a cell's time, and that of grids in the time for explaining and scoring.
_TRAINING, _GRIDS = 0.6, 0.5
Progress = Callable[[float], None]


def run(plan: Plan, folder: Path, jobs: int, *, fresh: bool = False, force: bool = False) -> None:
    """Begin or resume a run: compute its missing cells in `jobs` processes, then collect the rows.

    `fresh` deletes an earlier run, `force` resumes one of other versions. Only one job works in a run folder.
    """
    with run_folder(folder, force=force):
        begin(plan.spec, folder, fresh=fresh, force=force, notes=plan.notes)
        plan.prepare(jobs)
        unfinished = run_files.missing(plan.spec.cells(), folder)
        if unfinished:
            _compute(plan.spec, unfinished, folder, jobs)
        run_files.collect(plan.spec, folder)


@contextmanager
def run_folder(folder: Path, *, force: bool = False) -> Iterator[None]:
    """Create the run folder, or check that it is one, and keep other jobs out of it."""
    own_folder(folder, force=force)
    with file_lock(folder / run_files.LOCK):
        yield


def begin(spec: RunSpec, folder: Path, *, fresh: bool = False, force: bool = False, notes: Sequence[str] = ()) -> None:
    """Write the specification of a run, or check that the existing run has the same one and the same versions."""
    if fresh or not (folder / "spec.json").exists():
        run_files.remove_run(folder)
        run_files.save_about(
            folder,
            command=run_files.command_line(),
            network=_configured(spec, spec.scenarios[0]).description,
            classes={name: scenarios.get(name).classes for name in spec.scenarios},
            methods=methods.descriptions(spec.methods),
            metrics={name: metrics.get(name).described(spec.steps) for name in spec.metrics},
            notes=list(notes),
        )
        spec.save(folder)  # last: a folder with a specification can be resumed
        return
    if differences := RunSpec.load(folder).differences(spec):
        text = "; ".join(f"{name}: {there} there, {here} here" for name, (there, here) in differences.items())
        raise InputError(f"{folder} is a run with another specification ({text}): choose another --out, or --fresh")
    before, now = (
        ", ".join(f"{name} {values.get(name)}" for name in ("agop", "torch"))
        for values in (run_files.About.load(folder).versions, run_files.versions())
    )
    if before != now and run_files.missing(spec.cells(), folder):
        problem = f"{folder} was started with {before}, this is {now}"
        if not force:
            raise InputError(f"{problem}: install those, start again with --fresh, or mix versions with --force")
        warn(f"{problem}: its cells are of different versions")


def _configured(spec: RunSpec, name: str) -> Scenario:
    return scenarios.get(name).with_options(spec.options)


def _compute(spec: RunSpec, cells: Sequence[Cell], folder: Path, jobs: int) -> None:
    """Compute cells in parallel processes, with a progress bar that also counts the finished ones."""
    groups = {
        group[0].name if len(group) == 1 else f"{group[0].name} … {group[-1].name}": group
        for group in _groups(spec, cells, jobs)
    }
    fractions = dict.fromkeys(groups, 0.0)
    workers = max(1, jobs // _configured(spec, spec.scenarios[0]).threads)
    finished = len(spec.cells()) - len(cells)
    with progress_bar() as bar, closing(run_tasks(partial(run_cells, spec, folder), groups, workers)) as reports:
        task = bar.add_task("starting", total=finished + len(cells), completed=finished)
        try:
            for name, fraction in reports:
                fractions[name] = fraction
                running = [name for name, fraction in fractions.items() if 0 < fraction < 1]
                completed = sum(fractions[name] * len(group) for name, group in groups.items())
                bar.update(task, completed=finished + completed, description=", ".join(running[:2]) or "next cells")
        except FileError as error:
            if "could not write" not in str(error):
                raise
            raise FileError(f"{error}; finished cells are safe: free disk space and run again to resume") from error


def _groups(spec: RunSpec, cells: Sequence[Cell], jobs: int) -> list[list[Cell]]:
    """The cells in groups that one process computes: networks that train together, at most one share per process."""
    keys = {name: stack_key(_configured(spec, name)) for name in spec.scenarios}
    stacks: dict[object, list[Cell]] = {}
    for cell in cells:
        stacks.setdefault(keys[cell.scenario] or cell, []).append(cell)
    size = min(_MOST_TOGETHER, math.ceil(len(cells) / jobs))
    return [stack[i : i + size] for stack in stacks.values() for i in range(0, len(stack), size)]


def run_cells(spec: RunSpec, folder: Path, cells: Sequence[Cell], progress: Progress) -> None:
    """Compute cells into folder/cells/NAME; networks of one class and recipe train together."""
    configured = {name: _configured(spec, name) for name in {cell.scenario for cell in cells}}
    torch.set_num_threads(configured[cells[0].scenario].threads)
    data = [configured[cell.scenario].splits(cell.background, cell.seed, spec.masks) for cell in cells]
    own = (methods.get(name) for name in spec.methods if name in methods.names())
    tasks, rank = [], _SKETCH if any("sketch" in method.prior_parts for method in own) else 0
    for cell, (training, validation, _) in zip(cells, data, strict=True):
        scenario, part = configured[cell.scenario], folder / "cells" / f".{cell.name}.part"
        if not (part / CHECKPOINT).exists():
            shutil.rmtree(part, ignore_errors=True)
        watch = partial(_snapshot_rows, validation, scenario.snapshot_images, spec.masks == "signed")
        tasks.append(Task(scenario, cell.seed, training, validation, part, watch, rank))
    networks = train(tasks, spec.epochs, lambda done: progress(_TRAINING * done), spec.restarts)
    share = (1 - _TRAINING) / len(cells)
    for place, (cell, trained, (_, _, test)) in enumerate(zip(cells, networks, data, strict=True)):
        _write_cell(spec, cell, trained, test, _shifted(progress, _TRAINING + share * place, share))
        finished = folder / "cells" / cell.name
        trained.task.folder.rename(finished)
        (finished / CHECKPOINT).unlink(missing_ok=True)


def _shifted(progress: Progress, start: float, share: float) -> Progress:
    return lambda done: progress(start + share * done)


def _snapshot_rows(validation: Split, images: int, signed: bool, model: nn.Module, prior: AGOP) -> list[Row]:
    """The rows of one step of the training. Maps are scored on the first images only."""
    few = validation.first(images)
    result = [row("model", "accuracy", accuracy(model, validation.images, validation.labels), len(validation))]
    for method in _WATCHED if prior.diagonal.any() else ():  # zero if the logits don't depend on the image
        maps = explain(model, few.images, method, prior)
        for metric in _WATCHED_METRICS:
            mean = summary(metrics.get(metric)(maps, few.masks, signed=signed), [])
            result.append(row(method, metric, mean["value"], mean["n"]))
    return result


def _write_cell(spec: RunSpec, cell: Cell, trained: TrainingRun, every_test: Split, progress: Progress) -> None:
    """Explain and score a trained network, and write every file of its cell."""
    scenario, folder, training = trained.task.scenario, trained.task.folder, trained.task.training
    hits = correct(trained.model, every_test.images, every_test.labels)
    test = every_test.first(spec.test_images)
    priors = _priors(trained)
    for kind, prior in priors.items():
        prior.save(folder / (run_files.PRIOR if kind == scenario.prior else f"agop-{kind}.safetensors"))
    write_tensors(folder / run_files.WEIGHTS, trained.model.state_dict())
    scores = CellScores(rows=list(_facts(spec, trained, hits)))
    scores.samples[f"{spec.masks}/model/correct"] = hits[: len(test)].float()
    with warnings.catch_warnings():
        # The paper's GradCAM map is coarse on purpose.
        warnings.simplefilter("ignore", AGOPWarning)
        entries, reasons = resolve_methods(spec.methods, scenario, training, priors, cell)
        variants, _ = resolve_methods(spec.sensitivity, scenario, training, priors, cell)
        every = [metrics.get(name) for name in spec.metrics]
        of_maps = [metric for metric in every if not metric.needs_model]
        for name, reason in reasons.items():
            for kind in test.by_kind(spec.masks):  # metrics that query the model are beside the main kind only
                known = every if kind == spec.masks else of_maps
                scores.skip(name, {kind: [metric.name for metric in known]}, reason, len(test))
        layers = {entry.layer for entry in (*entries.values(), *variants.values()) if isinstance(entry.layer, str)}
        model = prepare(trained.model, keep=layers)
        # The fastest form of the network, for metrics that need many forward passes.
        together = getattr(scenario.network, "stacked_forward", None)
        scorer = model if together is None else StackOfOne(trained.model, together)
        share, number = 1 - _GRIDS if scenario.grids else 1.0, 0
        few = test.first(spec.sensitivity_images)
        for own, data, known in ((entries, test, every), (variants, few, of_maps)):
            for result in score(
                model, data.images, data.by_kind(spec.masks), own.items(), known, range(min(SHOWN, len(data))),
                signed=spec.masks == "signed", steps=spec.steps, scorer=scorer, references=training.images,
            ):  # fmt: skip
                scores.add(result)
                number += 1
                progress(share * number / (len(spec.methods) + len(spec.sensitivity)))
        if scenario.grids:
            on_grids = _shifted(progress, share, 1 - share)
            _add_grid_scores(scores, spec.metrics, trained.task, entries, model, every_test, on_grids)
    shown = test.first(SHOWN)
    pictures = pixels(shown.images, scenario.black, scenario.white)
    gallery(trained.model, shown.images, pictures, shown.by_kind(spec.masks), scores.maps, shown.labels).save(folder)
    scores.write(folder, cell, trained.noted)


def _priors(trained: TrainingRun) -> dict[str, AGOP]:
    """The prior collected while training and, if the scenario uses it, the one of the final checkpoint.

    The prior of a network with random weights counts all samples: it predicts few of them correctly.
    """
    data, kind, prior = trained.task.training, trained.task.scenario.prior, trained.prior
    batches = list(zip(torch.split(data.images, 64), torch.split(data.labels, 64), strict=True))
    if prior is None:
        return {kind: fit(trained.model, batches, only_correct=False, per_class=True, progress=False)}
    if kind == "training":
        return {"training": prior}
    return {"training": prior, "checkpoint": fit(trained.model, batches, per_class=True, progress=False)}


def _facts(spec: RunSpec, trained: TrainingRun, hits: Tensor) -> Iterator[Row]:
    """Accuracy on all test data, what the attempts to train gave, and the share of pixels in each kind of mask."""
    training, attempts = trained.task.training, trained.attempts
    facts = [("accuracy", float(hits.double().mean()), len(hits))]
    if spec.restarts is not None:
        facts += [
            ("first_accuracy", attempts[0], len(trained.task.validation)),
            ("attempts", len(attempts), 1),
            ("learned", float(trained.learned), 1),
        ]
    for fact in facts:
        yield {"masks": spec.masks, **row("model", *fact)}
    for kind, masks in training.by_kind(spec.masks).items():
        covered = float((masks != 0).double().mean())
        yield {"masks": kind, **row("masks", "coverage", covered, len(training))}


def _add_grid_scores(
    scores: CellScores, names: Sequence[str], task: Task, entries: Mapping[str, Entry], model: nn.Module,
    test: Split, progress: Progress,
) -> None:  # fmt: skip
    """Score the methods on grids by those of the run's metrics that grids have.

    If the test images don't suffice for one grid, the rows have no value: a bench must not fail after the training.
    """
    metrics_of_grids = {kind: [name for name in known if name in names] for kind, known in METRICS.items()}
    # Not the controls that are one map for every image: they have the size of one image.
    own = {name: entry for name, entry in entries.items() if name not in FIXED_MAPS}
    count = task.scenario.grids
    try:
        grids = make_grids(model, test.images, test.labels, test.masks, grids=count, seed=task.seed)
    except InputError:
        for name in own:
            scores.skip(name, metrics_of_grids, "too few images are classified correctly with confidence", count)
        return
    for number, parts in enumerate(cell_scores(model, grids, own.items(), references=task.training.images), 1):
        result = means_over_cells(parts)
        chosen = {kind: {name: result.scores[kind][name] for name in own} for kind, own in metrics_of_grids.items()}
        scores.add_scores(replace(result, scores=chosen))
        progress(number / len(own))


def resolve_methods(
    names: Iterable[str], scenario: Scenario, training: Split, priors: Mapping[str, AGOP], cell: Cell
) -> tuple[dict[str, Entry], dict[str, str]]:
    """The configured methods by name, and why the other names can't explain this network.

    A name may have a variant: gradcam@LAYER, agop-global@training (a prior), integrated-gradients@black (a baseline).
    Raises InputError for an unknown one.
    """
    entries, reasons, prior = {}, {}, priors[scenario.prior]
    for name in names:
        if name in FIXED_MAPS:
            entries[name] = Entry(FIXED_MAPS[name](training.masks != 0))
            continue
        base, _, variant = name.partition("@")
        method = methods.create(base)
        if scenario.layer is None and takes_layer(method) and not method.layer_is_optional:
            reasons[name] = "the network has no feature maps"
        elif method.needs_prior and not prior.diagonal.any():
            reasons[name] = "diag(M) is zero: the logits don't depend on the image"
        elif reason := methods.lacking(base, prior, with_references=True):
            reasons[name] = reason
        else:
            if any(field.name == "seed" for field in fields(method)):
                # Random numbers of its own in every cell: the same noise in every cell would be one sample.
                seed = zlib.crc32(f"{cell.name}/{method.seed}".encode())  # type: ignore[attr-defined]
                method = replace(method, seed=seed)  # type: ignore[call-arg]
            own, layer = prior, missing_layer(method, scenario.layer)
            if takes_layer(method):
                layer = variant or layer
            elif method.needs_prior and variant in priors:
                own = priors[variant]
            elif isinstance(method, IntegratedGradients) and variant in BASELINES:
                method = replace(method, baseline=_baseline(variant, scenario, training.images))
            elif variant:
                variants = "gradcam@LAYER, agop-global@training, integrated-gradients@black …"
                raise InputError(f"{method.name} has no variant {variant!r}: variants are {variants}")
            entries[name] = Entry(method, own, layer, references_from_prior=method.needs_prior)
    return entries, reasons


def _baseline(name: str, scenario: Scenario, images: Tensor) -> Baseline:
    if name == "zero":
        return 0.0
    if name == "black":
        if scenario.black is None:
            raise InputError(f"{scenario.name} doesn't define black: choose another baseline than @black")
        return torch.tensor(scenario.black)[:, None, None].expand_as(images[0])
    if name == "mean":
        return images.mean(dim=(0, 2, 3))[:, None, None].expand_as(images[0])
    return images[:_SEVERAL] if name == "training" else _blurred


def _blurred(images: Tensor) -> Tensor:
    """Images (N,C,H,W) blurred by a Gaussian; sigma is a tenth of their side."""
    sigma = images.shape[-1] / 10
    reach = int(2 * sigma)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2).to(images)
    line = (weights / weights.sum()).expand(images.shape[1], 1, 1, -1)
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    across = functional.conv2d(padded, line, groups=images.shape[1])
    return functional.conv2d(across, line.transpose(2, 3), groups=images.shape[1])
