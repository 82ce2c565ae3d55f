"""Files of an audit: index.html, one self-contained page, and the tables and heat maps for other tools."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from scipy import ndimage
from torch import Tensor

from agop.auditing.data import diagonals_of
from agop.evaluation.select import COLUMNS
from agop.images.overlays import Picture, data_uri, heat, pixels, signed_picture
from agop.io import write_atomically
from agop.tables import Table
from agop.web import environment, scripts, styles

if TYPE_CHECKING:
    from agop.auditing.findings import Audit, Finding
    from agop.auditing.subgroups import Subgroup

# Classes whose maps are shown, the most concentrated ones.
MOST_CLASSES = 24


# Images that contain a pattern most and least, and the least sides of small and large pictures on the page.
_SHOWN, _SIDE, _LARGE = 6, 112, 224
_OUTLINE = (0, 255, 255)


def page(audit: Audit) -> str:
    """The whole page as HTML."""
    compared = () if audit.comparison is None else audit.comparison.rows
    return (
        environment(__package__)
        .get_template("page.html")
        .render(
            styles=styles(__package__, "audit"),
            scripts=scripts(__package__),
            audit=audit,
            tried=_tried(audit),
            findings=[_view(audit, finding) for finding in audit.findings],
            others=[_view(audit, row.finding, own=False) for row in compared if row.of_other],
            subgroups=[(subgroup, _carried(subgroup)) for subgroup in audit.subgroups],
            most_classes=MOST_CLASSES,
            heat=lambda saliency: data_uri(heat(np.asarray(saliency))),
            signed=lambda values: data_uri(signed_picture(values)),
            selection_columns=COLUMNS,
        )
    )


def _tried(audit: Audit) -> list[dict[str, Any]]:
    """What was proposed of each kind, how much of it was tested and found, and the widest gap."""
    rows = []
    for kind in dict.fromkeys(row["kind"] for row in audit.table):
        own = [row for row in audit.table if row["kind"] == kind]
        proposed = [row for row in own if row["stage"] == "screening"]
        found = sum(finding.kind == kind for finding in audit.findings)
        counts = {"proposed": len(proposed), "tested": len(own) - len(proposed), "found": found}
        rows.append({"kind": kind, **counts, "widest": max(proposed, key=lambda row: row["gap"])})
    return rows


def _view(audit: Audit, finding: Finding, *, own: bool = True) -> dict[str, Any]:
    """What a finding's article shows. `own` is False for a finding of the other model, whose prior isn't here."""
    images, contained = finding.ranked, finding.contained
    both, probabilities = finding.example
    low, high = ([float(end)] * images.shape[1] for end in (images.min(), images.max()))
    pictures = [
        {"uri": _uri(pixels(images[[place]], low, high)[0], finding.region),
         "name": contained.pictures[place], "score": float(contained.scores[place])}
        for place in (*range(_SHOWN), *range(-_SHOWN, 0))
    ]  # fmt: skip
    example = [
        {"uri": _uri(picture, finding.region, _LARGE), "predicted": audit.class_names[int(scores.argmax())],
         "share": f"{100 * float(scores[finding.class_index]):.0f} %"}
        for picture, scores in zip(pixels(both, low, high), probabilities, strict=True)
    ]  # fmt: skip
    outlined = None
    if own and audit.prior is not None:
        saliency = diagonals_of(audit.prior)[finding.class_index].sum(dim=0).sqrt().nan_to_num()
        outlined = _uri(heat(np.asarray(saliency)), finding.region)
    return {
        "finding": finding,
        "title": finding.kind.capitalize(),
        "name": audit.class_names[finding.class_index],
        "example": example,
        "map": outlined,
        "most": pictures[:_SHOWN],
        "least": pictures[_SHOWN:],
    }


def _carried(subgroup: Subgroup) -> list[tuple[str, list[tuple[str, str]]]]:
    """Images that change most, what they got something of, and the result, with P(class) before and after."""
    if subgroup.carrier is None:
        return []
    trial, index = subgroup.carrier, subgroup.class_index
    order = trial.changes.argsort(descending=True)[:_SHOWN]
    split, hosts, donors = trial.pairs.predictions.split, trial.pairs.hosts[order], trial.pairs.donors[order]
    before = trial.pairs.predictions.before[hosts, index]
    low, high = ([float(end)] * split.images.shape[1] for end in (split.images.min(), split.images.max()))
    changed = trial.candidate.intervention(trial.pairs).changed(split.images[hosts], split.images[donors])

    def strip(images: Tensor, texts: Sequence[str]) -> list[tuple[str, str]]:
        return [(_uri(picture, None), text) for picture, text in zip(pixels(images, low, high), texts, strict=True)]

    return [
        ("Other images", strip(split.images[hosts], [f"{p:.2f}" for p in before.tolist()])),
        (f"Images of group {subgroup.name}", strip(split.images[donors], [""] * len(order))),
        (
            "Other images, with what carries the group",
            strip(changed, [f"{p:.2f}" for p in before + trial.changes[order]]),
        ),
    ]


def _uri(picture: Picture, region: Tensor | None, side: int = _SIDE) -> str:
    """The picture, enlarged to at least this side with sharp pixels, with the region's outline."""
    factor = max(1, -(-side // min(picture.shape[:2])))
    large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    if region is not None:
        inside = region.numpy().repeat(factor, axis=0).repeat(factor, axis=1)
        large[inside & ~ndimage.binary_erosion(inside, np.ones((5, 5)))] = _OUTLINE
    return data_uri(large)


_PICTURE_COLUMNS = ("picture", "class", "finding", "score", "contains")
_FINDING_COLUMNS = (
    "finding", "kind", "class_index", "class", "top", "left", "bottom", "right", "effect", "low", "high", "control",
    "prevalence", "sentence", "next_steps",
)  # fmt: skip


def write_exports(folder: Path, findings: Sequence[Finding], names: Sequence[str]) -> None:
    """Write findings.csv, pictures.csv, pictures.jsonl and heatmaps/. Heat maps of an earlier audit are removed."""
    rows = [
        [
            number, each.kind, each.class_index, names[each.class_index], *(each.box or ("",) * 4), each.effect,
            *each.interval, each.control, each.prevalence, each.sentence, each.next_steps,
        ]
        for number, each in enumerate(findings, 1)
    ]  # fmt: skip
    entries = [entry for number, finding in enumerate(findings, 1) for entry in _entries(number, finding, names)]
    cells = [[entry[name] for name in _PICTURE_COLUMNS] for entry in entries]
    tables = {"findings.csv": Table(_FINDING_COLUMNS, rows), "pictures.csv": Table(_PICTURE_COLUMNS, cells)}
    for name, table in tables.items():
        # A file name that isn't UTF-8 keeps its bytes.
        write_atomically(folder / name, table.csv().encode(errors="surrogateescape"))
    maps = (saliency for finding in findings for saliency in finding.maps)
    for entry, saliency in zip(entries, maps, strict=True):
        levels = 255 * saliency.double() / saliency.max().clamp_min(1e-30)  # gray, 255 at the maximum
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(levels.round().clamp(0, 255), dtype=np.uint8)).save(buffer, format="PNG")
        write_atomically(folder / entry["heatmap"], buffer.getvalue())
    current = {Path(entry["heatmap"]).name for entry in entries}
    for path in (folder / "heatmaps").glob("finding*-*.png"):
        if path.name not in current:
            path.unlink()
    write_atomically(folder / "pictures.jsonl", "".join(f"{json.dumps(entry)}\n" for entry in entries).encode())


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
            "heatmap": f"heatmaps/finding{number}-{place:04}.png",
        }
