"""`agop bench shortcuts --data FOLDER` with ELPV's folder: a nuisance that nobody planted, the type of solar cells."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agop.auditing.audit import examine
from agop.auditing.data import AuditedModel, read_sample
from agop.auditing.findings import Audit
from agop.auditing.repair import Repair
from agop.auditing.subgroups import names_of, subgroups
from agop.bench.networks import SmallResNet
from agop.bench.scenarios.base import Recipe, Scenario, normalised, selected
from agop.bench.training import Task, train
from agop.errors import InputError
from agop.images.datasets import read_cells
from agop.io import write_atomically
from agop.model.probe import probing
from agop.model.state import fingerprint
from agop.processes import run_tasks, track
from agop.report.folder import read_record, write_json
from agop.tables import Table

SIDE, EPOCHS = 96, 20
# Share of the training cells in which type and defect agree: mono with a defect, poly intact.
AGREEMENTS = {"mono": 0.9, "balanced": 0.5, "poly": 0.1}
CLASSES, TYPES = ("intact", "defect"), ("mono", "poly")
# Cells of each group that only test the networks, at least.
_TESTED = 40
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class NaturalSpec:
    """What a run computes: from which folder, with how many training cells, for how many epochs."""

    data: str
    samples: int = 560
    epochs: int = EPOCHS


@dataclass(frozen=True)
class NaturalResult:
    """One network. `before` and `after` its repair are accuracies by group, on cells that nothing else used.

    `findings` are the audit's sentences without the types, `subgroups` those with them.
    """

    goes_with: str
    seed: int
    before: dict[str, float]
    after: dict[str, float]
    findings: tuple[str, ...]
    subgroups: tuple[str, ...]
    repair: tuple[str, ...]


def run_natural(
    folder: Path, jobs: int, data: Path, seeds: Sequence[int], kinds: Sequence[str], samples: int, quick: bool,
    print_line: Callable[[str], None],
) -> None:  # fmt: skip
    """Begin or resume a run: compute the missing networks, then write and print the report."""
    spec = NaturalSpec(str(data.resolve()), 120 if quick else min(samples, NaturalSpec.samples), 1 if quick else EPOCHS)
    path = folder / "shortcuts.json"
    if path.exists() and (other := read_record(path, NaturalSpec)) != spec:
        raise InputError(f"{folder} has a run with {other}: choose another --out")
    write_json(path, asdict(spec))
    cases = {f"{name}-{seed:03d}": (name, seed) for seed in seeds for name in kinds}
    print_line(f"{len(cases)} networks: two to four minutes each on one core")
    missing = {name: case for name, case in cases.items() if not (folder / "models" / f"{name}.json").exists()}
    with closing(run_tasks(partial(_run, spec, folder), missing, jobs)) as reports:
        finished = (name for name, fraction in reports if fraction == 1)
        for _ in track(finished, "models", total=len(missing), show=bool(missing)):
            pass
    shutil.rmtree(folder / "training", ignore_errors=True)
    results = [read_record(path, NaturalResult) for path in sorted((folder / "models").glob("*.json"))]
    text = markdown(spec, results)
    write_atomically(folder / "report.md", text.encode())
    print_line(text)
    print_line(f"wrote {folder / 'report.md'}")


def parts(defects: Indices, types: NDArray[np.str_], agreement: float, samples: int, seed: int) -> tuple[Indices, ...]:
    """Training cells, more cells in the same shares that are audited as well, cells for the repair, and all others.

    The cells for the repair are as many of each group, among them those that are audited but didn't train. The others
    test.
    """
    random = np.random.default_rng(seed)
    training, more, repairing, tested = (list[Indices]() for _ in range(4))
    pools = {
        (defect, kind): random.permutation(np.flatnonzero((defects == defect) & (types == kind)))
        for defect in range(2)
        for kind in TYPES
    }
    agrees = round(samples / 2 * agreement)
    counts = {(d, kind): agrees if (kind == "mono") == d else samples // 2 - agrees for d, kind in pools}
    least = min(_TESTED, *(len(pool) // 4 for pool in pools.values()))
    factor = min((len(pools[group]) - least) / count for group, count in counts.items())
    if factor < 1:
        raise InputError(f"samples is {samples}: the cells suffice for {int(factor * samples)}")
    largest = max(int(factor * count) - count for count in counts.values())
    for group, count in counts.items():
        first, own, rest, last = np.split(pools[group], (least, least + count, least + int(factor * count)))
        training.append(own)
        more.append(rest)
        others = largest - len(rest)
        repairing += [rest, last[:others]]
        tested += [first, last[others:]]
    return tuple(random.permutation(np.concatenate(part)) for part in (training, more, repairing, tested))


def _run(spec: NaturalSpec, folder: Path, case: tuple[str, int], progress: Callable[[float], None]) -> None:
    """In a worker: train one network, audit it, without and with the types, and repair it."""
    torch.set_num_threads(1)
    (goes_with, seed), name = case, f"{case[0]}-{case[1]:03d}"
    images, defects, types = read_cells(Path(spec.data), SIDE)
    training, more, repairing, tested = parts(defects, types, AGREEMENTS[goes_with], spec.samples, seed)
    truths = {"none": np.zeros(images.shape[:3], bool)}
    splits = selected([training, more], images, defects, truths, "none")
    recipe = Recipe(
        epochs=spec.epochs, batch=64, learning_rate=5e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle",
        snapshot_every=None, hook_every=8,
    )  # fmt: skip
    network = partial(SmallResNet, len(CLASSES))
    scenario = Scenario(
        "cells", "shortcuts", lambda *_: tuple(splits), network, "layer3", tuple(AGREEMENTS), recipe=recipe
    )
    job = Task(scenario, seed, splits[0], splits[1], folder / "training" / name)
    run = train([job], spec.epochs, lambda done: progress(0.5 * done))[0]
    audited = np.concatenate([training, more])
    inputs, labels = normalised(images[audited]), torch.from_numpy(defects[audited])
    sample = read_sample(run.model, inputs, labels, None, seed=0, progress=False)
    known = names_of(types[audited].tolist(), sample)
    with AuditedModel.of(run.model, sample) as model:
        examined = examine(model, sample, run.prior, CLASSES, seed=0, progress=False)
        decisive = subgroups(model, known, CLASSES, seed=0)
    findings = tuple(finding for _, finding in examined.findings)
    audit = Audit(
        findings, (), 0.0, 0, CLASSES, fingerprint=fingerprint(run.model), subgroups=decisive, groups=known
    )  # fmt: skip
    before = _accuracies(run.model, images, defects, types, tested)
    after, lines = before, list[str]()
    if audit.sentences:
        inputs, labels = normalised(images[repairing]), torch.from_numpy(defects[repairing])
        repair = Repair.of(run.model, audit, inputs, labels, groups=types[repairing].tolist(), progress=False)
        after, lines = _accuracies(repair.model, images, defects, types, tested), repair.lines
    result = NaturalResult(
        goes_with, seed, before, after, tuple(finding.sentence for finding in findings),
        tuple(subgroup.sentence for subgroup in decisive), tuple(lines),
    )  # fmt: skip
    torch.save(run.model.state_dict(), folder / f"{name}.pt")
    write_json(folder / "models" / f"{name}.json", asdict(result))


def _accuracies(
    model: nn.Module, images: NDArray[np.uint8], defects: Indices, types: NDArray[np.str_], tested: Indices
) -> dict[str, float]:
    """Accuracy of each group, on cells that nothing else used."""

    def predicted(rows: Indices) -> Tensor:
        with probing(model) as probe:
            return torch.cat(
                [probe.predict(normalised(images[part])) for part in np.array_split(rows, len(rows) // 64 + 1)]
            )

    right = (predicted(tested) == torch.from_numpy(defects[tested])).numpy()
    return {
        f"{CLASSES[defect]} {kind}": float(right[(defects[tested] == defect) & (types[tested] == kind)].mean())
        for defect in range(2)
        for kind in TYPES
    }


def markdown(spec: NaturalSpec, results: Sequence[NaturalResult]) -> str:
    """The report: does a network decide by the type, does the audit find that, and does a repair help?"""
    groups = [f"{name} {kind}" for name in CLASSES for kind in TYPES]

    def row(result: NaturalResult) -> list[str]:
        changes = [
            f"{result.before[group]:.2f}" + (f" → {result.after[group]:.2f}" if result.repair else "")
            for group in groups
        ]
        worst = f"{min(result.before.values()):.2f} → {min(result.after.values()):.2f}"
        found = ("yes" if some else "–" for some in (result.findings, result.subgroups))
        share = f"{100 * AGREEMENTS[result.goes_with]:.0f} %"
        return [share, str(result.seed), *changes, worst, *found]

    columns = ("mono among defects", "seed", *groups, "worst", "found without types", "found with types")
    ordered = sorted(results, key=lambda result: (-AGREEMENTS[result.goes_with], result.seed))
    sentences = [
        f"- {100 * AGREEMENTS[result.goes_with]:.0f} %, seed {result.seed}: {text}"
        for result in ordered
        for text in (*result.findings, *result.subgroups, *result.repair)
    ]
    lines = [
        "# Solar cells: a nuisance that nobody planted",
        "",
        f"{len(results)} networks on ELPV (CC BY-NC-SA 4.0), {SIDE}×{SIDE}, trained on {spec.samples} cells, defect or",
        "intact. The audit uses these and more cells in the same shares. The repair uses as many cells of each group,",
        "none of which trained. Accuracies of the four groups, before and after the repair, on all other cells.",
        "",
        *Table(columns, [row(result) for result in ordered]).markdown(),
        "",
        *sentences,
    ]
    return "\n".join(lines) + "\n"
