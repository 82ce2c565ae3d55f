"""Compare two models: does what decides a class in one of them decide it in the other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agop.auditing.examining import Examined
from agop.auditing.finding import Finding, class_label, subject_in_words
from agop.auditing.intervals import Mean, finite
from agop.auditing.predictor import Pairs
from agop.auditing.proposals import PATCH
from agop.auditing.regions import overlap
from agop.auditing.searching import Search
from agop.auditing.trial import MARGIN, Trial, trial_on

REMOVED, REDUCED, UNCHANGED, STRONGER, NEW = "removed", "reduced", "unchanged", "stronger", "new"
# Regions of two models that overlap more than this are one region.
_SAME = 0.1


@dataclass(frozen=True, eq=False)
class Compared:
    """A finding of either model, tested on both with the same pairs of images.

    `effect` and `other_effect` are the mean changes of P(class), `difference` is the second minus the first, with a
    paired 95 % `interval`. `verdict` is removed, reduced, unchanged, stronger or new.
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
        return {
            "kind": self.finding.kind,
            "class_index": self.finding.class_index,
            "finding_of": "other" if self.of_other else "model",
            "effect": self.effect,
            "other_effect": self.other_effect,
            "difference": self.difference,
            "interval": [finite(end) for end in self.interval],
            "verdict": self.verdict,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The findings of two models, each tested on both."""

    accuracy: float
    rows: tuple[Compared, ...]

    @property
    def lines(self) -> list[str]:
        """A sentence about the other model, and one per finding."""
        accuracy = f"The other model: accuracy {100 * self.accuracy:.1f} %."
        return [accuracy, *(row.sentence for row in self.rows or ())] + ([] if self.rows else [_NOTHING])

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {"accuracy": self.accuracy, "findings": [row.to_dict() for row in self.rows]}


_NOTHING = "No shortcut found in either model."


def compare(first: Examined, second: Examined, accuracy: float, names: Sequence[str]) -> Comparison:
    """Test the findings of both models on both. `accuracy` is that of the second model."""
    own = [(trial, finding, False) for trial, finding in first.findings]
    others = [(trial, finding, True) for trial, finding in second.findings if not _is_among(finding, first)]
    rows = [_compared(first.search, second.search, *entry, names) for entry in own + others]
    return Comparison(accuracy, tuple(rows))


def _is_among(finding: Finding, examined: Examined) -> bool:
    """True if the other model has the same finding."""
    alike = [
        other for _, other in examined.findings
        if (other.kind, other.class_index) == (finding.kind, finding.class_index)
    ]  # fmt: skip
    if finding.kind == PATCH:
        return False  # another patch may look different
    if finding.region is None:
        return bool(alike)
    regions = [other.region for other in alike if other.region is not None]
    return any(overlap(region, finding.region) > _SAME for region in regions)


def _compared(
    first: Search, second: Search, trial: Trial, finding: Finding, of_other: bool, names: Sequence[str]
) -> Compared:
    proposal, index = trial.proposal, trial.proposal.class_index
    trials = []
    for search in (first, second):
        pairs = Pairs(search.testing, index, trial.hosts, trial.donors)
        generator = torch.Generator().manual_seed(search.screener.seed)
        trials.append(trial_on(search.screener.predictor, pairs, trial.screening, trial.p_share, generator, trial.keep))
    before, after = (each.effect.value for each in trials)
    difference = Mean.over_groups(trials[1].changes - trials[0].changes, trial.donors)
    outcome, subject = verdict(difference, *trials), subject_in_words(proposal)
    figures = [
        f"{before:.2f}",
        f"{after:.2f}",
        *(f"{value:+.2f}" for value in (difference.value, *difference.interval)),
    ]
    own, other, change_of_effect, low, high = (figure.replace("-", "−") for figure in figures)
    text = (
        f"{subject}, {class_label(names[index])}: effect {own}, in the other model {other}, difference "
        f"{change_of_effect} [{low}, {high}]: {outcome}."
    )
    return Compared(finding, subject, of_other, before, after, difference.value, difference.interval, outcome, text)


def verdict(difference: Mean, before: Trial, after: Trial) -> str:
    """What became of an effect, from its paired difference and the trials on both models."""
    low, high = difference.interval
    if low <= 0 <= high or abs(difference.value) < MARGIN:
        return UNCHANGED
    if high < 0:
        return REMOVED if _absent(after) else REDUCED
    return NEW if _absent(before) else STRONGER


def _absent(trial: Trial) -> bool:
    """True if the effect wouldn't be a finding even at the upper end of its interval."""
    return trial.excess.interval[1] < MARGIN
