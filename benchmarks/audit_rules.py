"""What each threshold of an audit does, at half and at twice its value. `python benchmarks/audit_rules.py CIFAR FOLDER`

Small CNNs on three classes of CIFAR-10, with planted shortcuts and without, seeds from 100 on. They are trained once,
into FOLDER; audits are kept there as well. Prints the table of docs/audit-rules.md. About 20 minutes on one core.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from agop.auditing import audit, candidates, data, groups, regions, search, subgroups, suspect, tests, thresholds
from agop.auditing.data import AuditedModel, read_sample
from agop.bench.scenarios.planted import Case, PlantedTask, Source, planted_task
from agop.bench.shortcuts import LEARNED, use_of_plant
from agop.evaluation.select import Priors
from agop.tables import Table
from false_alarms import small_cnn

MODULES = (audit, candidates, data, groups, regions, search, subgroups, suspect, tests)
PLANTED = ("patch", "watermark", "frame", "colour", "grid")
CASES = [
    *(Case(kind, "confounder", "strong", 100) for kind in PLANTED),
    *(Case("clean", "none", "strong", seed) for seed in (100, 101, 102)),
]
FACTORS = (0.5, 2.0)
# Shares and correlations.
AT_MOST_ONE = ("nearly", "associated", "alike")
EPOCHS, PER_CLASS = 10, 200


def trained(task: PlantedTask, classes: int, path: Path) -> nn.Module:
    """A network, from its file if that is there."""
    torch.manual_seed(0)
    model = small_cnn(classes)
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for part in torch.split(torch.randperm(len(task.training.labels)), 64):
            optimizer.zero_grad()
            cross_entropy(model(task.training.images[part]), task.training.labels[part]).backward()
            optimizer.step()
    torch.save(model.state_dict(), path)
    return model.eval()


def found(case: Case, task: PlantedTask, model: nn.Module, values: thresholds.Thresholds) -> bool:
    """Does the audit have a finding: of the planted class, or of any class of a clean network?"""
    for module in MODULES:
        module.THRESHOLDS = values  # type: ignore[attr-defined]
    sample = read_sample(model, task.test.images, task.test.labels, PER_CLASS, seed=0, progress=False)
    classes = sample.audited if case.kind == "clean" else [task.target]
    with AuditedModel.of(model, sample) as audited:
        split = audited.first.split
        priors = Priors.of(audited.model, split.images, split.labels, None, audited.first.rows, progress=False)
        return bool(search.Search(audited, priors).run(classes, progress=False).certain)


def main() -> None:
    source, folder = Source(data=sys.argv[1], classes=3, samples=3000), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    path = folder / "audits.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    models = {}
    for case in CASES:
        task = planted_task(case, source)
        model = trained(task, source.classes, folder / f"{case.name}.pt")
        drop = use_of_plant(model, task)["drop"]
        print(f"{case.name}: {drop:.2f} less accuracy if the plant changes sides", file=sys.stderr, flush=True)
        if case.kind == "clean" or drop >= LEARNED:
            models[case] = task, model

    def counts(name: str, factor: float) -> tuple[str, str]:
        values = thresholds.Thresholds()
        if name:
            changed = factor * getattr(values, name)
            values = replace(values, **{name: min(changed, 1.0) if name in AT_MOST_ONE else changed})
        results: dict[bool, list[bool]] = {False: [], True: []}
        for case, (task, model) in models.items():
            key = f"{case.name} {name} {factor}"
            if key not in kept:
                kept[key] = found(case, task, model, values)
                path.write_text(json.dumps(kept, indent=1))
            results[case.kind == "clean"].append(kept[key])
        print(name, factor, results, file=sys.stderr, flush=True)
        planted, clean = (f"{sum(each)} of {len(each)}" for each in results.values())
        return planted, clean

    first = counts("", 1.0)
    print(f"As they are: found {first[0]}, false alarms {first[1]}.\n")
    rows = []
    for name, value in asdict(thresholds.Thresholds()).items():
        (low, low_alarms), (high, high_alarms) = (counts(name, factor) for factor in FACTORS)
        rows.append([name, f"{value:g}", low, low_alarms, high, high_alarms])
    columns = ("threshold", "value", "found at half", "false alarms", "found at twice", "false alarms")
    print(*Table(columns, rows).markdown(), sep="\n")


if __name__ == "__main__":
    main()
