"""Findings: what decides a class, in figures and in one sentence."""

from __future__ import annotations

import html
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from agop.auditing.candidates import BORDER, COLOUR, HIGH_FREQUENCY, PATCH, REGION, Candidate, PatchCandidate
from agop.auditing.data import class_label, diagonals_of
from agop.auditing.groups import Rule
from agop.auditing.regions import box_of, ends_of
from agop.auditing.reliance import Reliance
from agop.auditing.tests import Screening, Trial
from agop.errors import InputError
from agop.evaluation.select import Selection
from agop.io import write_atomically
from agop.prior.agop import AGOP
from agop.prior.show import place_in_words
from agop.stats import finite
from agop.tables import counted

if TYPE_CHECKING:
    from agop.auditing.subgroups import Subgroup


@dataclass(frozen=True, eq=False)
class Containing:
    """Images (M,C,H,W) of a class, which of them contain a pattern, and a score (M,) in 0..1, largest first.

    The score of images that contain it is at least 0.5, that of others at most 0.5. In each half, it grows with the
    model's response. `recognised` (M,) are those that the model classifies correctly.
    """

    ranked: Tensor
    scores: Tensor
    contains: Tensor
    recognised: Tensor
    pictures: tuple[str, ...]

    @classmethod
    def of(cls, *screenings: Screening) -> Containing:
        """The images of the class in the screenings of both halves, from their groups and responses."""
        parts, names = [], list[str]()
        for each in screenings:
            members, own, split = each.members[: each.of_class], slice(each.of_class), each.predictions.split
            low = each.responses[~each.contains].mean()
            places = ((each.responses[own] - low) / max(each.gap, 1e-12)).clamp(0, 1)
            recognised = each.predictions.before[members].argmax(dim=1) == each.candidate.class_index
            parts.append((split.images[members], (places + each.contains[own]) / 2, each.contains[own], recognised))
            names += [split.pictures[place] for place in members]
        ranked, scores, contains, recognised = (torch.cat(part) for part in zip(*parts, strict=True))
        order = scores.argsort(descending=True, stable=True)
        pictures = tuple(names[place] for place in order.tolist())
        return cls(ranked[order], scores[order], contains[order], recognised[order], pictures)

    @property
    def share(self) -> float:
        """Share of the images that contain it."""
        return float(self.contains.double().mean())


_NEXT_STEPS = {
    PATCH: "Look for the patch in the images of the class. Mask it, or collect images without it, retrain, and compare "
    "both models.",
    COLOUR: "Compare how the images of the classes were taken. Augment colours and contrast, retrain, and compare "
    "both models.",
    BORDER: "Crop the images, or collect images without the frame, retrain, and compare both models.",
    HIGH_FREQUENCY: "Compare compression, scaling and cameras of the classes. Blur or resample all images in the same "
    "way, retrain, and compare both models.",
    REGION: "Look at the region in the images of the class. If it shows the object itself, nothing is wrong. Otherwise "
    "mask it, or collect images without it, retrain, and compare both models.",
}


@dataclass(frozen=True, eq=False)
class Finding:
    """Something that decides a class.

    `effect` is the mean change of P(class) with its 95 % `interval`, `control` that of the strongest control, and
    `prevalence` the share of the class's images that contain it. `region` (H,W) is None if it has no fixed place.
    `contained` are images of the class with a score of how much they contain it, and `maps` (M,H,W) their maps by
    agop-weighted. `example` is the pair with the median effect: an image before and after (2,C,H,W), and the
    probabilities of the classes (2,K). `candidate` has the intervention, `rule` says which images contain it.
    """

    kind: str
    class_index: int
    region: Tensor | None
    effect: float
    interval: tuple[float, float]
    control: float
    prevalence: float
    sentence: str
    contained: Containing = field(repr=False)
    maps: Tensor = field(repr=False)
    example: tuple[Tensor, Tensor] = field(repr=False)
    candidate: Candidate = field(repr=False)
    rule: Rule = field(repr=False)

    @property
    def ranked(self) -> Tensor:
        """Images (M,C,H,W) of the class, those that contain it most first."""
        return self.contained.ranked

    @property
    def box(self) -> list[int] | None:
        """Top, left, bottom and right of the region; None for a border and what has no fixed place."""
        return None if self.kind == BORDER else ends_of(self.region)

    @property
    def next_steps(self) -> str:
        """What to do about it."""
        return f"{_NEXT_STEPS[self.kind]} Without retraining, agop.repair or agop audit --repair refits the last layer."

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values, without its images."""
        whose = {"kind": self.kind, "class_index": self.class_index, "region": self.box}
        names = ("effect", "interval", "control", "prevalence", "sentence", "next_steps")
        values = {name: getattr(self, name) for name in names}
        return whose | values | {"interval": list(self.interval)}


# Known groups that a sentence names.
_LISTED = 10
_PROPERTIES = {
    COLOUR: "The colour and contrast of the image",
    BORDER: "The border of the image",
    HIGH_FREQUENCY: "The high-frequency band of the image",
}


def sentence(trial: Trial, name: str, contained: Containing, lost: float | None = None) -> str:
    """What was tested and what it changed, in plain words with figures.

    `lost` is the share of the images that contain it which are no longer recognised without it.
    """
    subject = subject_in_words(trial.candidate)
    pasted = "given to" if trial.candidate.kind in _PROPERTIES else "pasted into"
    verb = "decides" if trial.turned >= 0.5 else "influences"
    having, lacking = (  # NaN without images
        float(contained.recognised[part].double().mean()) for part in (contained.contains, ~contained.contains)
    )
    others = "" if math.isnan(lacking) else f" and {percent(lacking)} of the others"
    # Images with and without it would show the difference.
    doubt = " Nearly all images of the class have it and nearly no others: is it a part of the object?"
    without = "" if lost is None else f" With it removed, {percent(lost)} are no longer recognised."
    return (
        f"{subject} {verb} {class_label(name)}: {pasted} {len(trial.changes):,} other images it turns "
        f"{percent(trial.turned)} into {name} (from {trial.control_images}: {percent(trial.control_turned)}) and "
        f"raises the probability of {name} by {trial.effect.value:.2f} (from {trial.control_images}: "
        f"{trial.control:.2f}). "
        f"{percent(contained.share)} of the {name} images contain it; {percent(having)} of these{others} are "
        f"recognised.{without}{doubt if trial.candidate.shared else ''}"
    )


def subject_in_words(candidate: Candidate) -> str:
    """The subject of a sentence."""
    if candidate.region is not None:
        box, (height, width) = box_of(candidate.region), candidate.region.shape
        place = place_in_words((box.top + box.bottom) / (2 * height), (box.left + box.right) / (2 * width))
        return f"A {box.height}×{box.width} region at the {place}"
    if isinstance(candidate, PatchCandidate):
        return f"A {candidate.side}×{candidate.side} patch at any place"
    return _PROPERTIES[candidate.kind]


def percent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True, eq=False)
class Compared:
    """A finding of either model, tested on both with the same pairs of images.

    `effect` and `other_effect` are the mean changes of P(class), `difference` is the second minus the first, with a
    paired 95 % `interval`. `verdict` is removed, reduced, unchanged, unclear, stronger or new.
    """

    finding: Finding
    subject: str
    of_other: bool
    effect: float
    other_effect: float
    difference: float
    interval: tuple[float, float]
    verdict: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        whose = {"kind": self.finding.kind, "class_index": self.finding.class_index}
        whose["finding_of"] = "other" if self.of_other else "model"
        names = ("effect", "other_effect", "difference", "interval", "verdict", "sentence")
        values = {name: getattr(self, name) for name in names}
        return whose | values | {"interval": [finite(end) for end in self.interval]}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The findings of two models, each tested on both."""

    accuracy: float
    rows: tuple[Compared, ...]

    @property
    def lines(self) -> list[str]:
        """A sentence about the other model, and one per finding."""
        accuracy = f"The other model: accuracy {100 * self.accuracy:.1f} %."
        return [accuracy, *([row.sentence for row in self.rows] or ["No shortcut found in either model."])]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {"accuracy": self.accuracy, "findings": [row.to_dict() for row in self.rows]}


@dataclass(frozen=True, repr=False)
class Audit:
    """Findings of an audit, most certain first, and the table of everything that was tried.

    `notes` says what was skipped and why, `close` what more images may decide. `detectable` is the effect beyond the
    controls from which a shortcut would have been found in four of five cases, NaN if nothing was tried. `comparison`
    is that with another model. `subgroups` are those of the known `groups` by which it decides. `reliance` is what the
    model looks at, `selection` compares methods; both are None for a model at chance. `repair` has the sentences of a
    repair, if there was one.
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
    close: tuple[str, ...] = ()
    fingerprint: dict[str, str] | None = field(default=None, repr=False)
    per_class: int | None = None
    seed: int = 0
    subgroups: tuple[Subgroup, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict, repr=False)
    repair: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """A sentence per finding, and per known group that decides."""
        return [finding.sentence for finding in self.findings] + [subgroup.sentence for subgroup in self.subgroups]

    def summary(self) -> str:
        """Text for a terminal: the findings, or what was tried without one."""
        lines = [*self.notes, f"accuracy {100 * self.accuracy:.1f} % on {self.images:,} images"]
        lines += [f"{place}. {sentence}" for place, sentence in enumerate(self.sentences, 1)]
        lines += self.conclusion()
        lines += [] if self.comparison is None else self.comparison.lines
        if self.reliance is not None:
            lines += ["What it relies on:", *self.reliance.sentences()]
        if self.selection is not None:
            lines += ["Which map to trust:", self.selection.recommendation]
        return "\n".join(lines)

    @property
    def verdict(self) -> tuple[str, str]:
        """The answer in one sentence, and its kind: bad, good or open."""
        if self.at_chance:
            return "Nothing was tried: the model is at chance.", "open"
        if not self.sentences:
            return "No shortcut found.", "good"
        first: Finding | Subgroup = self.findings[0] if self.findings else self.subgroups[0]
        name, others = class_label(self.class_names[first.class_index]), len(self.sentences) - 1
        more = f" {counted(others, 'more finding')} below." if others else ""
        if isinstance(first, Finding):
            subject, rise = subject_in_words(first.candidate), f"{first.effect:.2f} in other images"
            text = f"{subject[0].lower()}{subject[1:]} raises the probability of {name} by {rise}"
        else:
            text = f"the model decides {name} by group {first.name}"
        return f"Possible shortcut: {text}.{more}", "bad"

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
        lines = [] if self.sentences else ["No shortcut found."]
        if self.groups and not self.subgroups:
            lines.append(f"No known group decides a class: {', '.join(sorted(set(self.groups.values()))[:_LISTED])}.")
        return [*lines, *self.close, f"Tried: {listed}. {detectable}"]

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
            "close": list(self.close),
            "findings": [finding.to_dict() for finding in self.findings],
            "subgroups": [subgroup.to_dict() for subgroup in self.subgroups],
            "tried": list(self.table),
            "repair": list(self.repair),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "reliance": None if self.reliance is None else self.reliance.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write audit.json, audit.safetensors (regions, images and maps of the findings), index.html and the exports.

        The exports are findings.csv, pictures.csv, pictures.jsonl and heatmaps/. audit.json comes first, since it marks
        all other files as results of an audit.
        """
        from agop.auditing.page import page, write_exports

        path = Path(folder)
        if path.exists() and not path.is_dir():
            raise InputError(f"{folder} is a file: give a folder")
        write_atomically(path / "audit.json", json.dumps(self.to_dict(), indent=1, allow_nan=False).encode())
        write_atomically(path / "audit.safetensors", to_safetensors(self._tensors()))
        write_exports(path, self.findings, self.class_names)
        write_atomically(path / "index.html", page(self).encode(errors="replace"))  # a file name may not be UTF-8

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {} if self.prior is None else {"class_diagonals": diagonals_of(self.prior)}
        for place, finding in enumerate(self.findings):
            tensors |= {f"finding{place}.images": finding.ranked, f"finding{place}.maps": finding.maps}
            if finding.region is not None:
                tensors[f"finding{place}.region"] = finding.region
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary().splitlines())
        return f"<div>{lines}</div>"
