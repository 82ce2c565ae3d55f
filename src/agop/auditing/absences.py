"""Of two classes, one has a pattern and the other lacks it: only its presence is a finding."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agop.auditing.matching import ALIKE, best_matches
from agop.auditing.proposals import PatchProposal
from agop.auditing.regions import overlap
from agop.auditing.trial import Trial


def without_absences(trials: Sequence[Trial], images: Tensor) -> list[Trial]:
    """The trials without those that say of one class what another trial says of the other class.

    Of two such trials, that one stays whose images with the pattern look more alike, compared with the others of the
    class: images with a pattern have it in common, images without it don't.
    """
    return [
        trial
        for trial in trials
        if not any(_same(trial, other) and _variety(other, images) < _variety(trial, images) for other in trials)
    ]


def _same(first: Trial, second: Trial) -> bool:
    a, b = first.proposal, second.proposal
    if a.kind != b.kind or a.class_index == b.class_index:
        return False
    if isinstance(a, PatchProposal) and isinstance(b, PatchProposal):
        return float(best_matches(a.template[None], b.template[None]).correlation) >= ALIKE
    return a.region is None or b.region is None or overlap(a.region, b.region) > 0


def _variety(trial: Trial, images: Tensor) -> float:
    """Variance of what images with the pattern look like, relative to those without it."""
    screening = trial.screening
    looks = trial.proposal.look(images[screening.members]).double()
    own, others = (looks[chosen].var(dim=0).mean() for chosen in (screening.contains, ~screening.contains))
    return float(own / others.clamp_min(1e-12))
