"""Trial: a proposal's intervention beside its controls, on pairs of images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.intervals import Mean
from agop.auditing.predictor import Change, Pairs, Predictor, change
from agop.auditing.proposals import Proposal

# An effect matters if P(class) rises by this much more than with the strongest control, and twice as much.
MARGIN = 0.05


@dataclass(frozen=True, eq=False)
class Trial:
    """A proposal with the mean change of P(class), the strongest control, and what is beyond that control.

    `turned` is the share of images that became the class, `control_turned` that of the strongest control.
    """

    proposal: Proposal
    effect: Mean
    control: float
    excess: Mean
    turned: float
    control_turned: float
    pairs: int

    @property
    def bound(self) -> float:
        """What the effect must have beyond the strongest control: as much again, and at least the margin."""
        return max(MARGIN, self.control)

    @property
    def p(self) -> float:
        """The p value of the effect beyond the control, against the bound."""
        return self.excess.p_above(self.bound)


def run_trial(
    predictor: Predictor,
    proposal: Proposal,
    pairs: Pairs,
    generator: torch.Generator,
    typical: float = -math.inf,
    keep: Tensor | None = None,
    least: float = -math.inf,
) -> Trial:
    """Apply the intervention and its controls to the same pairs.

    The controls are other places of equal size, and donors of other classes. `typical` is the effect for other classes.
    Controls aren't run for an effect below `least`.
    """
    pairs = proposal.placed(pairs)
    intervention = proposal.intervention(pairs)
    main = change(predictor, pairs, intervention, keep)
    if main.mean < least:
        effect = Mean.over_groups(main.probability, pairs.donors)
        return Trial(proposal, effect, math.nan, effect, main.turned_share, math.nan, len(pairs.hosts))
    donors = pairs.asked.other_donors(pairs.class_index, len(pairs.hosts), generator)
    controls = [change(predictor, pairs.with_donors(donors), intervention, keep)]
    controls += [change(predictor, pairs, control, keep) for control in proposal.controls(pairs)]
    strongest = max(controls, key=lambda control: control.mean)
    beyond = main.probability - (strongest.probability if strongest.mean >= typical else typical)
    return Trial(
        proposal,
        Mean.over_groups(main.probability, pairs.donors),
        max(strongest.mean, typical),
        Mean.over_groups(beyond, pairs.donors),
        main.turned_share,
        _most_turned(controls),
        len(pairs.hosts),
    )


def _most_turned(controls: list[Change]) -> float:
    return max(control.turned_share for control in controls)
