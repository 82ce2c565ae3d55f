"""What each threshold of an audit does, at half and at twice its value. `python benchmarks/audit_rules.py CIFAR FOLDER`

Networks on three classes of CIFAR-10: one with each planted shortcut and clean ones, seeds from 100 on. They are
trained once, into FOLDER, and so is each audit kept. Prints the table of docs/audit-rules.md. Up to half a minute
per audit.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from agop.auditing import audit, candidates, data, groups, regions, search, subgroups, suspect, tests, thresholds
from agop.auditing.data import AuditedModel, read_sample
from agop.bench.networks import SmallResNet
from agop.bench.scenarios.base import Scenario
from agop.bench.scenarios.planted import PREVALENCES, Case, PlantedTask, Source, planted_task
from agop.bench.shortcuts import LEARNED, RECIPE, use_of_plant
from agop.bench.training import Task, train
from agop.evaluation.select import Priors
from agop.prior.agop import AGOP
from agop.tables import Table

MODULES = (audit, candidates, data, groups, regions, search, subgroups, suspect, tests)
CASES = [
    *(Case(kind, "confounder", "strong", 100) for kind in ("patch", "sticker", "watermark", "frame", "colour", "grid")),
    *(Case("clean", "none", "strong", seed) for seed in (100, 101, 102)),
]
FACTORS = (0.5, 2.0)
AT_MOST_ONE = ("nearly", "associated", "alike")


def trained(case: Case, task: PlantedTask, source: Source, folder: Path) -> tuple[nn.Module, AGOP]:
    """The network of a case and its prior, from the folder if they are there."""
    weights, prior = folder / f"{case.name}.pt", folder / f"{case.name}.safetensors"
    if weights.exists() and prior.exists():
        model = SmallResNet(source.classes)
        model.load_state_dict(torch.load(weights, weights_only=True))
        return model.eval(), AGOP.load(prior)
    splits = task.training, task.validation, task.test
    network = partial(SmallResNet, source.classes)
    scenario = Scenario(case.kind, "shortcuts", lambda *_: splits, network, "layer3", tuple(PREVALENCES), recipe=RECIPE)
    job = Task(scenario, case.seed, task.training, task.validation, folder / "training" / case.name)
    run = train([job], RECIPE.epochs, lambda _: None)[0]
    assert run.prior is not None
    torch.save(run.model.state_dict(), weights)
    run.prior.save(prior)
    return run.model, run.prior


def found(case: Case, source: Source, folder: Path, values: thresholds.Thresholds) -> bool | None:
    """Does the audit have a finding: of the planted class, or of any class of a clean network. None: not learned."""
    task = planted_task(case, source)
    model, prior = trained(case, task, source, folder)
    planted = case.kind != "clean"
    if planted and use_of_plant(model, task)["drop"] < LEARNED:
        return None
    for module in MODULES:
        module.THRESHOLDS = values  # type: ignore[attr-defined]
    sample = read_sample(model, task.test.images, task.test.labels, per_class=200, seed=0, progress=False)
    classes = [task.target] if planted else sample.audited
    with AuditedModel.of(model, sample) as audited:
        split = audited.first.split
        priors = Priors.of(audited.model, split.images, split.labels, prior, audited.first.rows, progress=False)
        return bool(search.Search(audited, priors).run(classes, progress=False).certain)


def main() -> None:
    source, folder = Source(data=sys.argv[1], classes=3, samples=3000), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    path = folder / "audits.json"
    kept = json.loads(path.read_text()) if path.exists() else {}

    def counts(name: str, factor: float) -> tuple[str, str]:
        values = thresholds.Thresholds()
        if name:
            changed = factor * getattr(values, name)
            values = replace(values, **{name: min(changed, 1.0) if name in AT_MOST_ONE else changed})
        results = []
        for case in CASES:
            key = f"{case.name} {name} {factor}"
            if key not in kept:
                kept[key] = found(case, source, folder, values)
                path.write_text(json.dumps(kept, indent=1))
                print(key, kept[key], file=sys.stderr, flush=True)
            results.append((case.kind == "clean", kept[key]))
        planted = [result for clean, result in results if not clean and result is not None]
        clean = [result for clean, result in results if clean]
        return f"{sum(planted)} of {len(planted)}", f"{sum(clean)} of {len(clean)}"

    first = counts("", 1.0)
    print(f"As they are: found {first[0]}, false alarms {first[1]}.")
    rows = []
    for name, value in asdict(thresholds.Thresholds()).items():
        (low, low_alarms), (high, high_alarms) = (counts(name, factor) for factor in FACTORS)
        rows.append([name, f"{value:g}", low, low_alarms, high, high_alarms])
    columns = ("threshold", "value", "found at half", "false alarms", "found at twice", "false alarms")
    print(*Table(columns, rows).markdown(), sep="\n")


if __name__ == "__main__":
    main()
