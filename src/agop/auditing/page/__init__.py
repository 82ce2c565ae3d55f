"""index.html of an audit: one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agop.auditing.page.reliance_view import reliance_view
from agop.auditing.selection_text import COLUMNS
from agop.pictures.data_uri import data_uri
from agop.pictures.heat import Picture, heat, pixels
from agop.web import environment, scripts, styles

if TYPE_CHECKING:
    from agop.auditing.finding import Finding
    from agop.auditing.result import Audit

# Images that contain a pattern most and least, and the least side of a picture on the page.
_SHOWN, _SIDE = 6, 112
_OUTLINE = (0, 255, 255)


def page(audit: Audit) -> str:
    """The whole page as HTML."""
    compared = () if audit.comparison is None else audit.comparison.rows
    return (
        environment(__name__)
        .get_template("page.html")
        .render(
            styles=styles(__name__, "audit"),
            scripts=scripts(__name__),
            audit=audit,
            verdict=_verdict(audit),
            tried=_tried(audit),
            findings=[_view(audit, finding) for finding in audit.findings],
            others=[_view(audit, row.finding, own=False) for row in compared if row.of_other],
            reliance=None if audit.reliance is None else reliance_view(audit.reliance),
            selection=audit.selection,
            selection_columns=COLUMNS,
        )
    )


def _verdict(audit: Audit) -> str:
    """The answer in one sentence."""
    if audit.at_chance:
        return "Nothing was tried: the model is at chance."
    count = len(audit.findings)
    if not count:
        return "No shortcut found."
    return (
        "1 finding: check whether it is a shortcut." if count == 1 else f"{count} findings: check which are shortcuts."
    )


def _tried(audit: Audit) -> list[dict[str, Any]]:
    """What was proposed of each kind, how much of it was tested and found, and the widest gap."""
    kinds = dict.fromkeys(row["kind"] for row in audit.table)
    return [
        {
            "kind": kind,
            "proposed": sum(row["stage"] == "screening" for row in audit.table if row["kind"] == kind),
            "tested": sum(row["stage"] == "test" for row in audit.table if row["kind"] == kind),
            "found": sum(finding.kind == kind for finding in audit.findings),
            "widest": max(
                (row for row in audit.table if row["kind"] == kind and row["stage"] == "screening"),
                key=lambda row: row["gap"],
            ),
        }
        for kind in kinds
    ]


def _view(audit: Audit, finding: Finding, *, own: bool = True) -> dict[str, Any]:
    """What a finding's article shows. `own` is False for a finding of the other model, whose prior isn't here."""
    images, contained = finding.ranked, finding.contained
    low, high = ([float(end)] * images.shape[1] for end in (images.min(), images.max()))
    pictures = [
        {"uri": _uri(pixels(images[[place]], low, high)[0], finding.region),
         "name": contained.pictures[place], "score": float(contained.scores[place])}
        for place in (*range(_SHOWN), *range(-_SHOWN, 0))
    ]  # fmt: skip
    shown = {"most": pictures[:_SHOWN], "least": pictures[_SHOWN:]}
    diagonals = None if audit.prior is None or not own else audit.prior.class_diagonals
    saliency = None if diagonals is None else diagonals[finding.class_index].sum(dim=0).sqrt().nan_to_num()
    return {
        "finding": finding,
        "title": finding.kind.capitalize(),
        "name": audit.class_names[finding.class_index],
        "map": None if saliency is None else _uri(heat(np.asarray(saliency)), finding.region),
        **shown,
    }


def _uri(picture: Picture, region: Tensor | None) -> str:
    """The picture, enlarged to at least 112 pixels with sharp pixels, with the region's outline."""
    factor = max(1, -(-_SIDE // min(picture.shape[:2])))
    large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    if region is not None:
        inside = region.repeat_interleave(factor, dim=0).repeat_interleave(factor, dim=1)
        large[np.asarray(inside & ~_eroded(inside))] = _OUTLINE
    return data_uri(large)


def _eroded(region: Tensor) -> Tensor:
    """The pixels (H,W) whose neighbours are all in the region."""
    padded = torch.nn.functional.pad(region, (2, 2, 2, 2))
    return padded.unfold(0, 5, 1).unfold(1, 5, 1).flatten(2).all(dim=2)
