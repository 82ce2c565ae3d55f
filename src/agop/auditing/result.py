"""Audit: the findings, and everything that was tried."""

from __future__ import annotations

import html
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_safetensors
from torch import Tensor

from agop.auditing.comparing import Comparison
from agop.auditing.examining import Examined
from agop.auditing.exports import EXPORTS, HEATMAPS, write_exports
from agop.auditing.finding import Finding
from agop.auditing.intervals import finite
from agop.auditing.regions import ends_of
from agop.auditing.reliance import Reliance
from agop.auditing.selection import Selection
from agop.auditing.trial import Screening, Trial
from agop.errors import InputError
from agop.statistic.agop import AGOP
from agop.system.files import write_atomically

_PAGE, _JSON, _TENSORS = _MAIN = ("index.html", "audit.json", "audit.safetensors")
FILES = (*_MAIN, *EXPORTS, HEATMAPS)


@dataclass(frozen=True, repr=False)
class Audit:
    """Findings of an audit, most certain first, and the table of everything that was tried.

    `notes` says what was skipped and why. `detectable` is the effect beyond the controls from which a shortcut would
    have been found in four of five cases, NaN if nothing was tried. `comparison` is that with another model. `reliance`
    is what the model looks at, `selection` compares methods; both are None for a model at chance.
    """

    findings: tuple[Finding, ...]
    table: tuple[dict[str, Any], ...]
    accuracy: float
    images: int
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    detectable: float = math.nan
    at_chance: bool = False
    prior: AGOP | None = field(default=None, repr=False)
    comparison: Comparison | None = None
    selection: Selection | None = None
    reliance: Reliance | None = None

    def summary(self) -> str:
        """Text for a terminal: the findings, or what was tried without one."""
        lines = [*self.notes, f"accuracy {100 * self.accuracy:.1f} % on {self.images:,} images"]
        lines += [f"{place}. {finding.sentence}" for place, finding in enumerate(self.findings, 1)]
        lines += self.conclusion()
        lines += [] if self.comparison is None else self.comparison.lines
        if self.reliance is not None:
            lines += ["What it relies on:", *self.reliance.sentences()]
        if self.selection is not None:
            lines += ["Which map to trust:", self.selection.recommendation]
        return "\n".join(lines)

    def conclusion(self) -> list[str]:
        """What was tried, and what would have been found."""
        if self.at_chance:
            return []
        tried = Counter(row["kind"] for row in self.table if row["stage"] == "screening")
        listed = ", ".join(f"{count} × {kind}" for kind, count in tried.items())
        detectable = (
            f"An effect of {self.detectable:.2f} beyond the controls, in half of a class's images, would have been "
            "found in 4 of 5 cases."
        )
        return [*([] if self.findings else ["No shortcut found."]), f"Tried: {listed}. {detectable}"]

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON values."""
        return {
            "agop": "audit",
            "accuracy": self.accuracy,
            "images": self.images,
            "at_chance": self.at_chance,
            "class_names": list(self.class_names),
            "detectable": finite(self.detectable),
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
            "tried": list(self.table),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "reliance": None if self.reliance is None else self.reliance.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write audit.json, audit.safetensors (regions, images and maps of the findings), index.html and the exports.

        The exports are findings.csv, pictures.csv, pictures.jsonl and heatmaps/. audit.json comes first, since it marks
        all other files as results of an audit.
        """
        from agop.auditing.page import page

        path = Path(folder)
        if path.exists() and not path.is_dir():
            raise InputError(f"{folder} is a file: give a folder")
        write_atomically(path / _JSON, json.dumps(self.to_dict(), indent=1, allow_nan=False).encode())
        write_atomically(path / _TENSORS, to_safetensors(self._tensors()))
        write_exports(path, self.findings, self.class_names)
        write_atomically(path / _PAGE, page(self).encode(errors="replace"))  # a file name may not be UTF-8

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for place, finding in enumerate(self.findings):
            tensors[f"finding{place}.images"] = finding.ranked.contiguous()
            tensors[f"finding{place}.maps"] = finding.maps.contiguous()
            if finding.region is not None:
                tensors[f"finding{place}.region"] = finding.region.contiguous()
        if self.prior is not None and self.prior.class_diagonals is not None:
            tensors["class_diagonals"] = self.prior.class_diagonals.contiguous()
        return tensors

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary().splitlines())
        return f"<div>{lines}</div>"


def is_own_file(path: Path) -> bool:
    """True for a file or folder that `Audit.save` wrote: there is an audit.json of its own in its folder."""
    try:
        return path.name in FILES and json.loads((path.parent / _JSON).read_bytes()).get("agop") == "audit"
    except (OSError, ValueError, AttributeError):
        return False


def table_rows(examined: Examined, names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """A row per test, with its corrected p value, and per screening, as JSON values."""
    rows = [_tested(trial, p, names) for trial, p in zip(examined.tested, examined.ps, strict=True)]
    rows += [_row(each, "test", names) | {"p": 1.0} for each in examined.without_groups]
    return tuple(rows + [_row(each, "screening", names) for each in examined.screened])


def _tested(trial: Trial, p: float, names: Sequence[str]) -> dict[str, Any]:
    return {
        **_row(trial.screening, "test", names),
        "effect": trial.effect.value,
        "interval": [finite(end) for end in trial.effect.interval],
        "control": trial.control,
        "turned": trial.turned,
        "control_turned": trial.control_turned,
        "pairs": trial.pairs,
        "p": p,
    }


def _row(screening: Screening, stage: str, names: Sequence[str]) -> dict[str, Any]:
    proposal = screening.proposal
    return {
        "stage": stage,
        "kind": proposal.kind,
        "class_index": proposal.class_index,
        "class": names[proposal.class_index],
        "source": proposal.source,
        "region": ends_of(proposal.region),
        "separation": screening.separation,
        "gap": screening.gap,
        "share": screening.share,
    }
