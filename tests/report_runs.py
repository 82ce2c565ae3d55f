"""Run folders with known scores, written by hand: every verdict of a report on them can be worked out beforehand."""

import io
import json
from dataclasses import asdict, replace
from html.parser import HTMLParser

import numpy as np
from rich.console import Console
from safetensors.numpy import save

from agop.report.folder import Gallery, RunSpec, collect, save_cell, write_json
from agop.report.formats import show
from agop.report.run import Run, paper
from tests.command import run_checked

METHODS = tuple(paper()["linear"])
METRICS = {
    "pointing_game": ("PG", True),
    "iou": ("mIoU", True),
    "energy": ("Energy-GT", True),
    "deletion": ("Del", False),
}
_AP = {"average_precision": ("AP", True)}
SCENARIOS = ("linear", "multiplicative", "translations_rotations", "xor")


def write_xai_tris(folder, change=None, seeds=3, accuracy=0.5, scenarios=SCENARIOS, facts=None):
    """XAI-TRIS run with the paper's scores plus a little per seed. `change(row)` may return replacements for a row.

    `facts` of the networks by metric are added to their accuracy.
    """
    spec = RunSpec("xai-tris", scenarios, ("uncorrelated", "correlated"), seeds, METHODS, tuple(METRICS))
    rows, timings, convergence = [], [], []
    for cell in spec.cells():
        where = asdict(cell)
        right = accuracy if cell.background == "correlated" else 0.8
        for metric, value in ({"accuracy": right} | (facts or {})).items():
            rows.append(where | {"method": "model", "metric": metric, "value": value, "n": 10})
        for method in METHODS:
            timings.append(where | {"method": method, "metric": "milliseconds", "value": 1.0, "n": 10})
            for metric in METRICS:
                value = max(0, paper()[cell.scenario][method][metric])
                value += min(0.001, value / 20) * cell.seed
                row = where | {"method": method, "metric": metric, "value": value, "n": 10}
                rows.append(row | ((change and change(row)) or {}))
        for step, accuracy_then, iou in ((100, 0.5, 0.1), (200, 0.8, 0.2), (300, 0.8, 0.3)):
            convergence.append(where | {"step": step, "method": "model", "metric": "accuracy", "value": accuracy_then})
            row = where | {"step": step, "method": "agop-global", "metric": "iou"}
            convergence.append(row | {"value": iou + 0.01 * cell.seed})
    return _write(folder, spec, {"rows": rows, "timings": timings, "convergence": convergence})


def write_clevr(folder, scores, metrics=("iou", "energy")):
    """CLEVR-XAI run of one seed with these scores (N,) per method in all metrics, and one variant."""
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("drawn",), 1, tuple(scores), metrics, "all_objects",
        intervals="samples", sensitivity=("integrated-gradients@black",), sensitivity_images=2,
    )  # fmt: skip
    where = {"scenario": "clevr-xai", "background": "drawn", "seed": 0, "masks": "all_objects"}
    rows = [where | {"method": "masks", "metric": "coverage", "value": 0.162, "n": 9}]
    samples = {}
    for method, values in (scores | {"integrated-gradients@black": [0.5, 0.7]}).items():
        for metric in spec.metrics:
            rows.append(where | {"method": method, "metric": metric, "value": float(np.nanmean(values)), "n": 3})
            samples[f"all_objects/{method}/{metric}"] = np.array(values)
    timings = [where | {"method": method, "metric": "milliseconds", "value": 1} for method in scores]
    files = {"rows": rows, "timings": timings, "convergence": []}
    return _write(folder, spec, files, samples, network="a network", notes=["kept: 3"])


def write_networks(folder, scores, correct, learned=lambda cell: 1.0):
    """XAI-TRIS run of two networks on one task: `scores(cell, kind, method, metric)` and `correct(cell)` give (N,).

    The kinds of masks are own and union; the metrics are AP, rank accuracy and SRG, which has no masks.
    """
    metrics = {"average_precision": ("AP", True), "rank_accuracy": ("Rank", True), "srg": ("SRG", True)}
    spec = RunSpec(
        "xai-tris", ("linear", "linear-mlp"), ("uncorrelated",), 4, ("vanilla", "integrated-gradients", "smoothgrad"),
        tuple(metrics), "own", restarts=5, tasks={"linear-mlp": "linear"}, test_images=4,
    )  # fmt: skip

    def samples(cell):
        keys = [(kind, method, metric) for kind in ("own", "union") for method in spec.methods for metric in metrics]
        own = {"/".join(key): scores(cell, *key) for key in keys if key[0] == "own" or key[2] != "srg"}
        every = own | {"own/model/correct": correct(cell)}
        return {key: np.array(values, float) for key, values in every.items() if values is not None}

    rows = []
    for cell in spec.cells():
        where = asdict(cell) | {"masks": "own", "method": "model", "n": 4}
        facts = {"accuracy": np.mean(correct(cell)), "learned": learned(cell), "first_accuracy": 0.5, "attempts": 1}
        rows += [where | {"metric": metric, "value": float(value)} for metric, value in facts.items()]
        scored = samples(cell)
        for kind, method, metric in ((k, m, n) for k in ("own", "union") for m in spec.methods for n in metrics):
            values = scored.get(f"{kind}/{method}/{metric}")
            if kind == "own" or metric != "srg":
                value = None if values is None else float(values.mean())
                rows.append(where | {"masks": kind, "method": method, "metric": metric, "value": value})
    return _write(folder, spec, {"rows": rows}, samples, metrics=metrics)


def write_evaluation(folder, scores, name="linear", metric="iou"):
    """Evaluation of a user's model: no training, one metric, scores (N,) per method, NaN where undefined."""
    count = len(next(iter(scores.values())))
    spec = RunSpec(
        "evaluation", (name,), ("given",), 1, tuple(scores), (metric,), epochs=0, test_images=count,
        intervals="samples",
    )  # fmt: skip
    where = {"scenario": name, "background": "given", "seed": 0}
    rows = [
        where | {"masks": "true", "method": method, "metric": metric, "value": float(np.nanmean(values))}
        | {"n": int(np.isfinite(values).sum())}
        for method, values in scores.items()
    ]  # fmt: skip
    timings = [where | {"method": method, "metric": "milliseconds", "value": 1.5, "n": count} for method in scores]
    samples = {f"true/{method}/{metric}": np.asarray(values) for method, values in scores.items()}
    return _write(folder, spec, {"rows": rows, "timings": timings}, samples, classes={name: ["healthy"]})


def _write(folder, spec, files, samples=None, metrics=METRICS, **more):
    metrics = {name: (metrics | _AP)[name] for name in spec.metrics}
    about = {
        "metrics": {name: {"label": label, "higher_is_better": up} for name, (label, up) in metrics.items()},
        "command": f"agop bench {spec.benchmark}", "versions": {"agop": "0"}, "hardware": {"cores": 2, "machine": "x"},
    }  # fmt: skip
    write_json(folder / "about.json", about | more)
    write_cells(folder, spec, files, samples)
    return Run(folder)


def write_cells(folder, spec, files, samples=None):
    """The specification and its cells: rows by "rows", "timings" and "convergence", and scores (N,).

    The scores are the same for every cell, or a function of it.
    """
    spec.save(folder)
    for cell in spec.cells():
        place, where = folder / "cells" / cell.name, asdict(cell).items()
        names = ("rows", "timings", "convergence")
        rows = {name: [row for row in files.get(name, ()) if where <= row.items()] for name in names}
        save_cell(place, cell, {f"{name}.jsonl": own for name, own in rows.items()})
        if samples is not None:
            (place / "scores.safetensors").write_bytes(save(samples(cell) if callable(samples) else samples))
    collect(spec, folder)


def write_convergence(folder, rows, seeds=2, scenarios=("one", "two"), backgrounds=("plain",), absent=()):
    """A run folder with these rows of the training."""
    spec = RunSpec("own", scenarios, backgrounds, seeds, ("agop-global",), ("iou",), absent=absent)
    write_cells(folder, spec, {"convergence": rows})
    return folder


def replace_name(folder, old, new):
    """Replace a name in all JSON files and in the names of cells."""
    for path in [*folder.glob("*.json"), *folder.glob("cells/*/*.jsonl")]:
        path.write_text(path.read_text().replace(json.dumps(old), json.dumps(new)))
    for cell in list((folder / "cells").iterdir()):
        cell.rename(cell.with_name(cell.name.replace(old, new)))
    collect(RunSpec.load(folder), folder)
    return Run(folder)


def change_spec(run, **changes):
    """The run with another specification."""
    replace(run.spec, **changes).save(run.folder)
    return run.folder


def change_about(run, **changes):
    """The run with other facts in about.json."""
    write_json(run.folder / "about.json", asdict(run.about) | changes)
    return run.folder


def add_gallery(cell, pictures, labels, predicted, masks, maps, places=None):
    """Samples for the page, in the folder of a cell."""
    arrays = (np.array(labels), np.array(predicted), masks, maps, None if places is None else np.array(places))
    Gallery(pictures, *arrays).save(cell)


def report(run, form="json", *options):
    """What `agop report` writes for a run or its folder. JSON is parsed."""
    folder = getattr(run, "folder", run)
    printed = run_checked("report", folder, "--format", form, *options, folder=folder).stdout
    if form == "html":
        return (folder / "index.html").read_text()
    return json.loads(printed) if form == "json" else printed


class Tags(HTMLParser):
    """Elements and text of a page; raises if an element is closed that isn't open."""

    VOID = ("meta", "link", "input", "br", "img", "wbr", "hr")

    def __init__(self, page):
        super().__init__()
        self.open, self.names, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def terminal_text(run, width=200, *, verbose=False):
    """What `agop bench` prints at its end."""
    console = Console(file=io.StringIO(), width=width)
    show(run, console, verbose=verbose)
    return console.file.getvalue()
