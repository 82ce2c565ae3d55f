"""`agop bench shortcuts`: models with and without a planted shortcut, and what each detector says of them."""

import copy
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from agop.auditing.audit import examine
from agop.auditing.data import AuditedModel, read_sample
from agop.auditing.findings import Audit, Finding
from agop.auditing.interventions import Transplant
from agop.auditing.regions import Box, overlap
from agop.auditing.repair import Repair, fit_head, inputs_of, put
from agop.bench.natural import AGREEMENTS, run_natural
from agop.bench.networks import SmallResNet
from agop.bench.plans import Names, select
from agop.bench.runner import run_folder
from agop.bench.scenarios.base import Recipe, Scenario
from agop.bench.scenarios.planted import KINDS, PREVALENCES, STRENGTHS, Case, PlantedTask, Source, planted_task
from agop.bench.training import Task, TrainingRun, train
from agop.errors import InputError
from agop.explanation import explain
from agop.images.datasets import has_cells
from agop.io import write_atomically
from agop.model.probe import probing
from agop.model.state import fingerprint
from agop.prior.agop import AGOP
from agop.processes import run_tasks, track
from agop.report.folder import read_record, write_json
from agop.stats import auroc, estimate, wilson
from agop.tables import Table

RECIPE = Recipe(
    epochs=8, batch=64, learning_rate=5e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle",
    snapshot_every=None, hook_every=8,
)  # fmt: skip
# The share of training in the time of a model.
_TRAINING = 0.5


@dataclass(frozen=True)
class ShortcutSpec(Source):
    """What a run computes: from which images, for how many epochs, with which detectors. More models can be added."""

    epochs: int = RECIPE.epochs
    detectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Detection:
    """What a detector says about one model.

    `alarm` is larger the more it suspects a shortcut. `found` is its own verdict, None if it has none: for a planted
    shortcut, a finding of its class that overlaps the plant, unless that has no fixed place; otherwise, any finding.
    `iou` is the overlap of the region it names with that of the plant, None without both.
    """

    alarm: float
    seconds: float
    found: bool | None = None
    iou: float | None = None


@dataclass(frozen=True)
class ModelResult(Case):
    """One model: its plant, how much it uses it, and what each detector says.

    `drop` is the accuracy that the model loses if the images of the target class lose the plant and those of other
    classes get it, `change` the mean rise of P(class) in images that get the plant. `fixed`: the plant is always at
    the same place. `share` is the mean of diag(M) there over its mean everywhere, `transplant` the mean rise of
    P(class) when the place is pasted from images of the class into others. `findings` are the sentences of the audit.
    Only of a shortcut that was found: `heads` are the accuracies of the worst group (class, with or without the plant),
    of the mean group and of the images as they are, by the head's name; `verdicts` those of the repair.
    """

    accuracy: float
    drop: float
    change: float
    fixed: bool
    detections: dict[str, Detection]
    findings: tuple[str, ...]
    share: float | None = None
    transplant: float | None = None
    heads: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    verdicts: tuple[str, ...] = ()


def run_shortcuts(
    folder: Path, jobs: int, *, data: Path | None, seeds: int, first_seed: int, kind: Names, prevalence: Names,
    strength: Names, detector: Names, classes: int, label: Sequence[int] | None, samples: int, quick: bool,
    force: bool, print_line: Callable[[str], None],
) -> None:  # fmt: skip
    """Begin or resume a run: compute the missing models, then write and print the report."""
    if data is not None and has_cells(data):
        with run_folder(folder, force=force):
            kinds = select("kind", kind, list(AGREEMENTS))
            run_natural(folder, jobs, data, range(first_seed, first_seed + seeds), kinds, samples, quick, print_line)
        return
    listed = cases(
        select("kind", kind, list(KINDS)),
        select("prevalence", prevalence, list(PREVALENCES), ["confounder", "balanced"]),
        select("strength", strength, list(STRENGTHS)),
        range(first_seed, first_seed + seeds),
    )
    spec = ShortcutSpec(
        data=None if data is None else str(data.resolve()),
        classes=len(label) if label else classes,
        samples=600 if quick else samples,
        labels=tuple(label or ()),
        epochs=1 if quick else RECIPE.epochs,
        detectors=tuple(dict.fromkeys(("audit", *select("detector", detector, DETECTORS)))),
    )
    planted_task(listed[0], spec)  # raises now if a file is missing or damaged
    with run_folder(folder, force=force):
        begin(spec, folder)
        print_line(f"{len(listed)} models: one to two minutes each on one core")
        missing = {case.name: case for case in listed if not (folder / "models" / f"{case.name}.json").exists()}
        with closing(run_tasks(partial(_run_model, spec, folder), missing, jobs)) as reports:
            finished = (name for name, fraction in reports if fraction == 1)
            for _ in track(finished, "models", total=len(missing), show=bool(missing)):
                pass
        shutil.rmtree(folder / "training", ignore_errors=True)
        text = markdown(spec, read_results(folder))
        write_atomically(folder / "report.md", text.encode())
    print_line(text)
    print_line(f"wrote {folder / 'report.md'}")


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


def begin(spec: ShortcutSpec, folder: Path) -> None:
    """Write the specification of a run, or check that the existing run has the same one."""
    path = folder / "shortcuts.json"
    if not path.exists():
        write_json(path, asdict(spec))
        return
    other = read_record(path, ShortcutSpec)
    for name, wanted in vars(spec).items():
        if getattr(other, name) != wanted:
            own = getattr(other, name)
            raise InputError(f"{folder} has a run with {name}={own!r}, not {wanted!r}: choose another --out")


def read_results(folder: Path) -> list[ModelResult]:
    """The results of all finished models. Raises FileError if one is damaged."""
    fix = "delete it and run again to resume"
    results = [read_record(path, ModelResult, fix) for path in sorted((folder / "models").glob("*.json"))]
    return [
        replace(result, detections={name: Detection(**values) for name, values in result.detections.items()})
        for result in results
    ]


def _run_model(spec: ShortcutSpec, folder: Path, case: Case, progress: Callable[[float], None]) -> None:
    """In a worker: train one model, measure how it uses its plant, and ask every detector."""
    torch.set_num_threads(1)
    task = planted_task(case, spec)
    splits = task.training, task.validation, task.test
    network = partial(SmallResNet, spec.classes)
    scenario = Scenario(case.kind, "shortcuts", lambda *_: splits, network, "layer3", tuple(PREVALENCES), recipe=RECIPE)

    def trained(case: Case, data: PlantedTask) -> TrainingRun:
        job = Task(scenario, case.seed, data.training, data.validation, folder / "training" / case.name)
        return train([job], spec.epochs, lambda done: progress(_TRAINING * done))[0]

    run = trained(case, task)
    model, prior = run.model, run.prior
    assert prior is not None  # a run has one epoch at least
    audit, findings = by_audit(model, task, prior, confounded=case.prevalence == "confounder")
    detections, repaired = {"audit": audit}, dict[str, Any]()
    if case.prevalence == "confounder" and audit.found:
        other = replace(case, prevalence="balanced")
        repaired = by_repair(model, task, findings, trained(other, planted_task(other, spec)).model)
    detections |= {name: by_reading(name, model, task, prior) for name in spec.detectors if name != "audit"}
    result = ModelResult(
        **asdict(case), **use_of_plant(model, task), **place_of_plant(model, task, prior),
        detections=detections, findings=tuple(finding.sentence for finding in findings), **repaired,
    )  # fmt: skip
    write_json(folder / "models" / f"{case.name}.json", asdict(result))
    shutil.rmtree(folder / "training" / case.name, ignore_errors=True)


def use_of_plant(model: nn.Module, task: PlantedTask) -> dict[str, Any]:
    """Accuracy, `drop` and `change` of a `ModelResult`, on the same test images with and without the plant."""
    labels, of_target = task.test.labels, task.test.labels == task.target
    mixed, without, planted = (
        _probabilities(model, images) for images in (task.test.images, task.without, task.planted)
    )
    helped, misled = (
        torch.where(of_target[:, None], *pair).argmax(dim=1) == labels
        for pair in ((planted, without), (without, planted))
    )
    return {
        "accuracy": float((mixed.argmax(dim=1) == labels).double().mean()),
        "drop": float(helped.double().mean() - misled.double().mean()),
        "change": float((planted - without)[~of_target, task.target].mean()),
    }


def place_of_plant(model: nn.Module, task: PlantedTask, prior: AGOP) -> dict[str, Any]:
    """`fixed`, `share` and `transplant` of a `ModelResult`, whether the plant is there or not."""
    if task.plant.fixed is None:
        return {"fixed": False}
    region = torch.from_numpy(task.plant.fixed)
    diagonal = prior.diagonal.sum(dim=0)
    of_target = task.test.labels == task.target
    hosts, donors = task.test.images[~of_target], task.test.images[of_target]
    donors = donors[torch.arange(len(hosts)) % len(donors)]
    before, after = (_probabilities(model, images) for images in (hosts, Transplant(region).changed(hosts, donors)))
    share, transplant = diagonal[region].mean() / diagonal.mean(), (after - before)[:, task.target].mean()
    return {"fixed": True, "share": float(share), "transplant": float(transplant)}


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    with probing(model) as probe:
        return torch.cat([probe.logits(part).double().softmax(dim=1) for part in torch.split(images, 256)])


# Images of each class whose maps are read.
_IMAGES = 40
# Side of maps in SpRAy, and neighbours of each map.
_POOLED, _NEIGHBOURS = 8, 8
_SMALLEST_P = 1e-12
Read = Callable[[nn.Module, PlantedTask, AGOP], tuple[float, Tensor | None]]


def by_audit(model: nn.Module, task: PlantedTask, prior: AGOP, *, confounded: bool) -> tuple[Detection, list[Finding]]:
    """The audit's search in the test images, and its findings, without the parts that don't search.

    The alarm is −log10 of the smallest p value, before the correction, which would make most of them 1. If the plant
    is a confounder, only findings of its class count, at its place if that is fixed.
    """
    start = time.perf_counter()
    sample = read_sample(model, task.test.images, task.test.labels, per_class=None, seed=0, progress=False)
    names = [f"class {index}" for index in range(sample.classes)]
    with AuditedModel.of(model, sample) as audited:
        examined = examine(audited, sample, prior, names, seed=0, progress=False)
    findings = [finding for _, finding in examined.findings]
    seconds = time.perf_counter() - start
    alarm = -math.log10(max(min((trial.p for trial in examined.result.trials), default=1.0), _SMALLEST_P))
    right = [finding for finding in findings if not confounded or finding.class_index == task.target]
    iou = _best_overlap([finding.region for finding in right if finding.region is not None], task)
    at_plant = not confounded or task.plant.fixed is None or bool(iou)
    return Detection(alarm, seconds, bool(right) and at_plant, iou), findings


def by_repair(model: nn.Module, task: PlantedTask, findings: list[Finding], balanced: nn.Module) -> dict[str, Any]:
    """`heads` and `verdicts` of a `ModelResult`, on the half of the test images that tested the findings.

    DFR (Kirichenko et al. 2023) fits the head to the other half as it is, with groups that count alike: here their true
    labels, which nobody has in practice.
    """
    sample = read_sample(model, task.test.images, task.test.labels, per_class=None, seed=0, progress=False)
    names = tuple(f"class {index}" for index in range(sample.classes))
    audit = Audit(tuple(findings), (), 0.0, 0, names, fingerprint=fingerprint(model))
    repair = Repair.of(model, audit, task.test.images, task.test.labels, progress=False)
    dfr = copy.deepcopy(model)
    first, second = ([int(picture) for picture in half.pictures] for half in sample.halves())
    with AuditedModel.of(model, sample) as audited:
        features = inputs_of(audited.first, "fc", task.test.images[first]).numpy()[None, None].repeat(2, axis=1)
    labels = task.test.labels[first].numpy()
    groups = 2 * labels + task.test.masks.flatten(1).any(dim=1).numpy()[first]
    put(dfr.fc, *fit_head(features, labels, sample.classes, 1 / np.bincount(groups)[groups]))
    heads = {}
    for name, each in {"as trained": model, "repaired": repair.model, "DFR": dfr, "balanced": balanced}.items():
        mixed, *sides = (
            (_probabilities(each, images[second]).argmax(dim=1) == task.test.labels[second]).double()
            for images in (task.test.images, task.without, task.planted)
        )
        shares = [
            float(side[task.test.labels[second] == index].mean()) for side in sides for index in range(sample.classes)
        ]
        heads[name] = (min(shares), float(np.mean(shares)), float(mixed.mean()))
    return {"heads": heads, "verdicts": tuple(row.verdict for row in repair.rows)}


def by_reading(name: str, model: nn.Module, task: PlantedTask, prior: AGOP) -> Detection:
    """The detector of that name, which has an alarm and a region, but no verdict."""
    start = time.perf_counter()
    alarm, region = READERS[name](model, task, prior)
    seconds = time.perf_counter() - start
    return Detection(alarm, seconds, iou=_best_overlap([] if region is None else [region], task))


def _best_overlap(regions: list[Tensor], task: PlantedTask) -> float | None:
    """The largest overlap with the plant; None without a region of the plant or of the detector."""
    if task.plant.fixed is None:
        return None
    truth = torch.from_numpy(task.plant.fixed)
    return max((overlap(region, truth) for region in regions), default=None)


def _shares(maps: Tensor) -> Tensor:
    """Maps (N,H,W) as shares of their sums."""
    return maps / maps.sum(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def _top_window(maps: Tensor) -> tuple[float, Tensor]:
    """The largest share of a map (K,H,W) in a window of a sixth of its side, and that window."""
    side = max(2, maps.shape[-1] // 6)
    sums = avg_pool2d(_shares(maps)[:, None].double(), side, stride=1)[:, 0] * side**2
    place = int(sums.flatten().argmax())
    top, left = place % sums[0].numel() // sums.shape[2], place % sums.shape[2]
    box = Box(top, left, top + side, left + side)
    return float(sums.max()), box.region((maps.shape[1], maps.shape[2]))


def _class_maps(method: str, model: nn.Module, task: PlantedTask) -> list[Tensor]:
    """Maps (M,H,W) of some test images, by class."""
    return [
        _shares(explain(model, task.test.images[task.test.labels == index][:_IMAGES], method, nan="skip").nan_to_num())
        for index in range(int(task.test.labels.max()) + 1)
    ]


def _by_mean_maps(method: str, model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
    """The mean map of each class: how much of it is in its top window?"""
    return _top_window(torch.stack([maps.mean(dim=0) for maps in _class_maps(method, model, task)]))


def _by_diagonal(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
    """The diagonal of each class: how much of it is in its top window?"""
    assert prior.class_diagonals is not None  # the hook collects them
    return _top_window(prior.class_diagonals.sum(dim=1).nan_to_num())


def _by_spray(model: nn.Module, task: PlantedTask, prior: AGOP) -> tuple[float, Tensor | None]:
    """SpRAy (Lapuschkin et al. 2019): spectral clustering of each class's maps. The alarm is the largest eigengap.

    A gap among the first eigenvalues of the Laplacian says that the maps fall into clusters. The region is the top
    window of the mean map of one of two halves, split by the second eigenvector.
    """
    best: tuple[float, Tensor | None] = (0.0, None)
    for maps in _class_maps("integrated-gradients:steps=16", model, task):
        small = interpolate(maps[:, None], size=(_POOLED, _POOLED), mode="area").flatten(1)
        values, vectors = np.linalg.eigh(laplacian(small.double().numpy()))
        gaps = np.diff(values[: len(values) // 4])
        if gaps.max() > best[0]:
            second = torch.from_numpy(vectors[:, 1] > np.median(vectors[:, 1]))
            best = float(gaps.max()), _top_window(maps[second].mean(dim=0)[None])[1]
    return best


def laplacian(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normalised Laplacian (N,N) of the symmetric graph of nearest neighbours of points (N,F)."""
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :_NEIGHBOURS]
    graph = np.zeros_like(distances)
    np.put_along_axis(graph, nearest, 1.0, axis=1)
    graph = (graph + graph.T) / 2
    scale = 1 / np.sqrt(graph.sum(axis=1))
    return np.asarray(np.eye(len(points)) - scale[:, None] * graph * scale)


READERS: dict[str, Read] = {
    "agop-global": _by_diagonal,
    "integrated-gradients": partial(_by_mean_maps, "integrated-gradients:steps=16"),
    "gradcam": partial(_by_mean_maps, "gradcam"),
    "spray": _by_spray,
}
DETECTORS = ("audit", *READERS)

# Accuracy that a model must lose when the plant changes sides: below, it hasn't learned the shortcut.
LEARNED = 0.1
_RESAMPLED = 2000
# A smaller gap in accuracy of the worst group isn't divided by.
_GAP = 0.05
Models = Sequence[ModelResult]


def markdown(spec: ShortcutSpec, results: Models) -> str:
    """The report: is a learned shortcut found, and is there an alarm without one?"""
    confounded = [result for result in results if result.prevalence == "confounder"]
    learned = [result for result in confounded if result.drop >= LEARNED]
    not_learned = [result for result in confounded if result.drop < LEARNED]
    without = [result for result in results if result.prevalence != "confounder"]
    images = "drawn digits" if spec.data is None else spec.data.rstrip("/").rsplit("/", maxsplit=1)[-1]
    lines = [
        "# shortcuts",
        "",
        f"{len(results)} models on {images}: {spec.classes} classes, {spec.samples:,} images, {spec.side}×{spec.side},",
        f"seeds {', '.join(map(str, sorted({result.seed for result in results})))}.",
        f"{len(learned)} learned a planted shortcut. {len(without)} have none: they are clean, or half",
        f"of each class has the plant. {len(not_learned)} didn't learn theirs and aren't counted.",
        f"A model has learned its shortcut if it loses at least {100 * LEARNED:.0f} % accuracy when the plant changes",
        "sides. Found is a finding of the planted class, at the plant if its place is fixed; a false alarm is any",
        "finding. Intervals are 95 % over models.",
    ]
    if learned and without:
        columns = (
            "detector", "AUROC of the alarm", "audit minus this", "found", "false alarms", "IoU, fixed places",
            "seconds",
        )  # fmt: skip
        rows = [_detector_row(name, learned, without) for name in spec.detectors]
        lines += ["", *Table(columns, rows).markdown()]
    kinds = ("plant", "strength", "learned", "found", "balanced or clean", "false alarms")
    lines += ["", *Table(kinds, _kind_rows(learned, without, not_learned)).markdown(), *_places(results)]
    lines += repairs([result for result in learned if result.heads])
    return "\n".join(lines) + "\n"


def repairs(results: Models) -> list[str]:
    """What repairs of found shortcuts did: a row per head, with the share of the gap to balanced training it closes."""
    if not results:
        return []
    values = {name: np.array([result.heads[name] for result in results]) for name in results[0].heads}
    gap = values["balanced"][:, 0] - values["as trained"][:, 0]
    rows = []
    for name, heads in values.items():
        closed = (heads[:, 0] - values["as trained"][:, 0])[gap > _GAP] / gap[gap > _GAP]
        against = estimate(heads[:, 0] - values["repaired"][:, 0])
        worst, groups, mixed = heads.mean(axis=0)
        low, high = np.quantile(closed, [0.25, 0.75]) if len(closed) else (math.nan, math.nan)
        share = f"{np.median(closed):.2f} [{low:.2f}, {high:.2f}]" if len(closed) else "–"
        rows.append([name, f"{worst:.3f}", str(against), f"{groups:.3f}", f"{mixed:.3f}", share])
    columns = (
        "head",
        "worst group",
        "minus repaired",
        "mean of groups",
        "as they are",
        "gap closed, median [quartiles]",
    )
    gone = sum({"removed", "reduced"} >= set(result.verdicts) for result in results)
    return [
        "",
        f"Repair of {len(results)} found shortcuts, on images that didn't choose it. A group is a class with or",
        f"without the plant. For {gone}, the verdict is removed or reduced for each finding. DFR knows which images",
        "have the plant. Balanced: a network trained on the same images with the plant in half of each class;",
        f"{int((gap > _GAP).sum())} models have a gap to it of more than {_GAP:.2f} in the worst group.",
        "",
        *Table(columns, rows).markdown(),
    ]


def _detector_row(name: str, learned: Models, without: Models) -> list[str]:
    own = name == "audit"
    alarms = aurocs(name, learned, without)
    overlaps = [result.detections[name].iou or 0.0 for result in learned if result.fixed]
    return [
        name,
        _resampled(alarms),
        "" if own else _resampled(aurocs("audit", learned, without) - alarms),
        share_found(learned) if own else "–",
        share_found(without) if own else "–",
        f"{median(overlaps):.2f}" if overlaps else "–",
        f"{median(result.detections[name].seconds for result in (*learned, *without)):.0f}",
    ]


def aurocs(detector: str, learned: Models, without: Models) -> NDArray[np.float64]:
    """Probability that the alarm is louder for a learned shortcut than for a model without one.

    First that of the models, then those of resampled models, which are the same for every detector.
    """
    random = np.random.default_rng(0)
    high, low = (np.array([result.detections[detector].alarm for result in models]) for models in (learned, without))
    values = [auroc(high, low)]
    for _ in range(_RESAMPLED):
        first, second = (random.integers(0, len(models), len(models)) for models in (learned, without))
        values.append(auroc(high[first], low[second]))
    return np.array(values)


def _resampled(values: NDArray[np.float64]) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:.3f} [{low:.3f}, {high:.3f}]"


def share_found(results: Models) -> str:
    """The share of models for which the audit reports a finding, with Wilson's interval."""
    low, high = wilson(_found(results), len(results))
    return f"{_found(results) / len(results):.3f} [{low:.3f}, {high:.3f}]"


def _found(results: Models) -> int:
    return sum(bool(result.detections["audit"].found) for result in results)


def _kind_rows(*groups: Models) -> list[list[object]]:
    """A row per kind and strength of plant."""
    rows: list[list[object]] = []
    everyone = [result for group in groups for result in group]
    for kind in dict.fromkeys(result.kind for result in everyone):
        for strength in dict.fromkeys(result.strength for result in everyone if result.kind == kind):
            learned, without, not_learned = (
                [result for result in group if (result.kind, result.strength) == (kind, strength)] for group in groups
            )
            of = f"{len(learned)} of {len(learned) + len(not_learned)}"
            rows.append([kind, strength, of, _found(learned), len(without), _found(without)])
    return rows


def _places(results: Models) -> list[str]:
    """A row per kind, strength and seed with several prevalences: diagonal and transplant at the place of the plant."""
    groups: dict[tuple[str, str, int], dict[str, str]] = {}
    for result in results:
        if result.fixed:
            figures = f"{result.share:.2f} / {result.transplant:+.2f}"
            groups.setdefault((result.kind, result.strength, result.seed), {})[result.prevalence] = figures
    several = {key: figures for key, figures in groups.items() if len(figures) > 1}
    prevalences = list(dict.fromkeys(name for figures in several.values() for name in figures))
    rows = [[*key, *(figures.get(name, "–") for name in prevalences)] for key, figures in sorted(several.items())]
    if not rows:
        return []
    return [
        "",
        "At the place of the plant: the mean of diag(M) over its mean everywhere / the mean rise of P(class) when the",
        "place is pasted from images of the class into others.",
        "",
        *Table(["plant", "strength", "seed", *prevalences], rows).markdown(),
    ]
