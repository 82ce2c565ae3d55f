"""Files of an audit for other tools: tables, and heat maps for FiftyOne."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from agop.auditing.finding import Finding
from agop.system.csv_table import csv_table
from agop.system.files import write_atomically

HEATMAPS = "heatmaps"
_FINDINGS, _PICTURES, _LINES = EXPORTS = ("findings.csv", "pictures.csv", "pictures.jsonl")
_PICTURE_COLUMNS = ("picture", "class", "finding", "score", "contains")
_FINDING_COLUMNS = (
    "finding", "kind", "class_index", "class", "top", "left", "bottom", "right", "effect", "low", "high", "control",
    "prevalence", "sentence", "next_steps",
)  # fmt: skip


def write_exports(folder: Path, findings: Sequence[Finding], names: Sequence[str]) -> None:
    """Write findings.csv, pictures.csv, pictures.jsonl and heatmaps/. Heat maps of an earlier audit are removed."""
    rows = [_finding_row(number, finding, names) for number, finding in enumerate(findings, 1)]
    write_atomically(folder / _FINDINGS, _bytes(csv_table(_FINDING_COLUMNS, rows)))
    entries = [entry for number, finding in enumerate(findings, 1) for entry in _entries(number, finding, names)]
    cells = [[entry[name] for name in _PICTURE_COLUMNS] for entry in entries]
    write_atomically(folder / _PICTURES, _bytes(csv_table(_PICTURE_COLUMNS, cells)))
    maps = (saliency for finding in findings for saliency in finding.maps)
    for entry, saliency in zip(entries, maps, strict=True):
        write_atomically(folder / entry["heatmap"], _png(saliency))
    current = {Path(entry["heatmap"]).name for entry in entries}
    for path in (folder / HEATMAPS).glob("finding*-*.png"):
        if path.name not in current:
            path.unlink()
    write_atomically(folder / _LINES, "".join(f"{json.dumps(entry)}\n" for entry in entries).encode())


def _finding_row(number: int, finding: Finding, names: Sequence[str]) -> list[Any]:
    ends: list[int] | list[None] = finding.box or [None] * 4
    name = names[finding.class_index]
    figures = [finding.effect, *finding.interval, finding.control, finding.prevalence]
    return [number, finding.kind, finding.class_index, name, *ends, *figures, finding.sentence, finding.next_steps]


def _entries(number: int, finding: Finding, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A JSON object per image of a finding, those that contain it most first."""
    contained = finding.contained
    columns = zip(contained.pictures, contained.scores.tolist(), contained.contains.tolist(), strict=True)
    for place, (picture, score, contains) in enumerate(columns, 1):
        yield {
            "picture": picture,
            "class": names[finding.class_index],
            "finding": number,
            "score": round(score, 4),
            "contains": contains,
            "heatmap": f"{HEATMAPS}/finding{number}-{place:04}.png",
        }


def _png(saliency: Tensor) -> bytes:
    """A map (H,W) as gray levels, 255 at its maximum."""
    levels = 255 * saliency.double() / saliency.max().clamp_min(1e-30)
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(levels.round().clamp(0, 255), dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def _bytes(table: str) -> bytes:
    # A file name that isn't UTF-8 keeps its bytes.
    return table.encode(errors="surrogateescape")
