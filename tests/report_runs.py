"""Run folders with known scores, written by hand: every verdict of a report on them can be worked out beforehand."""

import json

import numpy as np
from safetensors.numpy import save

from agop.report.run import Run, paper
from agop.runs.spec import RunSpec

METHODS = tuple(paper()["linear"])
METRICS = {
    "pointing_game": ("PG", True),
    "iou": ("mIoU", True),
    "energy": ("Energy-GT", True),
    "deletion": ("Del", False),
}
SCENARIOS = ("linear", "multiplicative", "translations_rotations", "xor")


def write_xai_tris(folder, change=None, seeds=3, accuracy=0.5):
    """XAI-TRIS run with the paper's scores plus a little per seed. `change(row)` may return replacements for a row."""
    spec = RunSpec("xai-tris", SCENARIOS, ("uncorrelated", "correlated"), seeds, METHODS, tuple(METRICS))
    rows, timings, convergence = [], [], []
    for cell in spec.cells():
        where = {"scenario": cell.scenario, "background": cell.background, "seed": cell.seed}
        right = accuracy if cell.background == "correlated" else 0.8
        rows.append(where | {"method": "model", "metric": "accuracy", "value": right, "n": 10})
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


def write_clevr(folder, scores):
    """CLEVR-XAI run of one seed with these scores (N,) per method in both metrics, and one variant."""
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("drawn",), 1, tuple(scores), ("iou", "energy"), "all_objects",
        intervals="samples", sensitivity=("integrated-gradients@black",), sensitivity_images=2,
    )  # fmt: skip
    where = {"scenario": "clevr-xai", "background": "drawn", "seed": 0, "masks": "all_objects"}
    rows = [where | {"method": "masks", "metric": "coverage", "value": 0.162, "n": 9}]
    samples = {}
    for method, values in (scores | {"integrated-gradients@black": [0.5, 0.7]}).items():
        for metric in spec.metrics:
            rows.append(where | {"method": method, "metric": metric, "value": float(np.nanmean(values)), "n": 3})
            samples[f"all_objects/{method}/{metric}"] = np.array(values)
    timings = [where | {"method": "m", "metric": "n", "value": 1}]
    files = {"rows": rows, "timings": timings, "convergence": []}
    return _write(folder, spec, files, samples, network="a network", notes=["kept: 3"])


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


def _write(folder, spec, files, samples=None, **more):
    spec.save(folder)
    metrics = {name: METRICS[name] for name in spec.metrics}
    about = {
        "metrics": {name: {"label": label, "higher_is_better": up} for name, (label, up) in metrics.items()},
        "command": f"agop bench {spec.benchmark}", "versions": {"agop": "0"}, "hardware": {"cores": 2, "machine": "x"},
    }  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about | more))
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if samples is not None:
        cell = folder / "cells" / spec.cells()[0].name
        cell.mkdir(parents=True)
        (cell / "scores.safetensors").write_bytes(save(samples))
    return Run(folder)
