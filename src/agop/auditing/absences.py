"""Of two classes, one has a pattern and the other lacks it: only its presence is a finding."""

from __future__ import annotations

from collections.abc import Sequence

from agop.auditing.matching import ALIKE, best_matches
from agop.auditing.proposals import PatchProposal
from agop.auditing.regions import overlap
from agop.auditing.trial import Trial


def without_absences(trials: Sequence[Trial]) -> list[Trial]:
    """The trials without those that say of one class what another trial says of the other class.

    Of two such trials, that one stays whose images with the pattern look more alike, compared with the others of the
    class: images with a pattern have it in common, images without it don't.
    """
    return [
        trial for trial in trials if not any(_same(trial, other) and other.variety < trial.variety for other in trials)
    ]


def _same(first: Trial, second: Trial) -> bool:
    a, b = first.proposal, second.proposal
    if a.kind != b.kind or a.class_index == b.class_index:
        return False
    if isinstance(a, PatchProposal) and isinstance(b, PatchProposal):
        return float(best_matches(a.template[None], b.template[None]).correlation) >= ALIKE
    return a.region is None or b.region is None or overlap(a.region, b.region) > 0
