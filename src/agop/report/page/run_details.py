"""Details of a run: command, size, machine, definitions, and the raw files to download."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from agop.report.numbers import counted
from agop.report.run import Run
from agop.runs.about import Hardware
from agop.runs.controls import CONTROLS
from agop.runs.rows import FILES, collected
from agop.system.files import read_bytes


def facts(run: Run) -> list[tuple[str, str]]:
    """Facts about the run, as pairs of a name and a text."""
    spec, about = run.spec, run.about
    lines = [
        ("Command", about.command),
        ("Training runs", "" if spec.epochs == 0 else _trainings(run)),
        ("Images", f"{spec.test_images:,}{' per task' if len(run.places) > 1 else ''}; {spec.masks} masks"),
        ("Network", about.network or ""),
        *(("Note", note) for note in about.notes),
        ("Options", ", ".join(f"{key}: {value}" for key, value in spec.options.items())),
        ("Versions", "; resumed with ".join(run.versions)),
        ("Machine", ", ".join(_machine(about.hardware))),
    ]
    return [(name, text) for name, text in lines if text]


def definitions(run: Run) -> list[dict[str, Any]]:
    """Label, name, description, bounds and direction of every metric."""
    metrics = []
    for metric, about in run.metrics.items():
        what = "wall time per map, in milliseconds" if metric == "milliseconds" else about.get("what", "")
        bounds = about.get("bounds")
        metrics.append(
            {
                "label": about["label"],
                "name": metric,
                "what": _prose(what),
                "bounds": "" if not bounds else " to ".join(f"{end:g}" for end in bounds),
                "direction": "higher is better" if about["higher_is_better"] else "lower is better",
            }
        )
    return metrics


def methods(run: Run) -> list[tuple[str, str]]:
    """Description of each method that has one."""
    known = CONTROLS | run.about.methods
    descriptions = []
    for name in (*run.spec.methods, *run.spec.sensitivity):
        base, _, variant = name.partition("@")
        description = known.get(name) or (f"{base} with {_variant(base, variant)}" if variant else "")
        if description:
            descriptions.append((name, description))
    return descriptions


def raw(run: Run) -> list[dict[str, Any]]:
    """The run's files, gzipped: convergence alone would be two megabytes as text."""
    contents = {name: collected(run.cells, name) for name in FILES}
    contents |= {name: read_bytes(run.folder / name) for name in ("spec.json", "about.json")}
    packed = []
    for name, content in contents.items():
        if content:
            text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
            packed.append({"name": name, "size": _size(len(content)), "text": text})
    return packed


def _trainings(run: Run) -> str:
    cells = len(run.spec.cells())
    return f"{cells} ({counted(run.spec.seeds, 'seed')} per task), {counted(run.spec.epochs, 'epoch')} each"


def _machine(machine: Hardware) -> list[str]:
    cores = "" if machine.cores is None else f"{machine.cores} cores"
    parts = (cores, machine.processor, machine.machine, machine.memory, machine.system)
    return [part for part in parts if part]


def _prose(docstring: str) -> str:
    """A docstring as prose: without shapes and backticks."""
    return " ".join(docstring.replace(" (N,)", "").replace("`", "").split())


def _variant(base: str, variant: str) -> str:
    if base.startswith("gradcam"):
        return f"the layer “{variant}”"
    return f"the baseline “{variant}”" if base == "integrated-gradients" else f"the AGOP of “{variant}”"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
