"""Trial: a proposal's intervention beside its controls, on pairs of images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.grouping import OTHERS_PER_IMAGE, Rule, clearest_rule, shared_rule
from agop.auditing.intervals import Mean, p_share_above
from agop.auditing.predictor import Asked, Pairs, Predictor, change, evenly
from agop.auditing.proposals import Proposal
from agop.auditing.two_groups import LEAST_SHARE, Groups
from agop.interventions import Intervention

# An effect matters if P(class) rises by this much more than with the strongest control.
MARGIN = 0.05
# Probability of a false alarm in an audit, after Holm's correction.
LEVEL = 0.05
# Images that the controls paste from.
_WITHOUT, _OTHERS = "images without it", "images of other classes"
# Share of other places that may not have such groups, and of images without the pattern that may not have it elsewhere.
ELSEWHERE = 0.5


@dataclass(frozen=True, eq=False)
class Screening:
    """A proposal with the response (M,) of the model to each image of the class, and two groups of these images.

    The response is the mean change of the log-odds of the class in the same few images, the `hosts`. `contains` (M,)
    marks the images that contain it, by the rule; `border` is the value between the groups. If it is shared by the
    class, as many images of other classes follow those of the class.
    """

    proposal: Proposal
    members: Tensor
    responses: Tensor
    rule: Rule
    contains: Tensor
    separation: float
    p: float
    border: float
    hosts: Tensor

    @property
    def carriers(self) -> Tensor:
        """Positions of the images of the class that contain it."""
        return self.members[: self.of_class][self.contains[: self.of_class]]

    @property
    def of_class(self) -> int:
        """Number of members that are images of the class, which come first."""
        return len(self.members) // 2 if self.proposal.shared else len(self.members)

    @property
    def share(self) -> float:
        """Share of the images of the class that contain it."""
        return float(self.contains[: self.of_class].double().mean())

    @property
    def gap(self) -> float:
        """Mean response to the images that contain it, minus that to the others."""
        return float(self.responses[self.contains].mean() - self.responses[~self.contains].mean())


@dataclass(frozen=True, eq=False)
class Trial:
    """A tested proposal: the mean change of P(class), the strongest control, and what is beyond that control.

    `turned` is the share of images that became the class, `control_turned` that of the strongest control. `p_share` is
    the p value of its share in the class, against that in other classes. `changes` (N,) are those of P(class) in the
    pairs of `hosts` (N,) and `donors` (N,). Pixels in `keep` (H,W) weren't changed. `control_images` says which images
    the control pasted from. `elsewhere` is the share of other places of equal size that have such groups as well.
    `variety` is how much images with it vary, relative to those without it.
    """

    screening: Screening
    effect: Mean
    control: float
    excess: Mean
    turned: float
    control_turned: float
    p_share: float
    hosts: Tensor
    donors: Tensor
    changes: Tensor
    keep: Tensor | None = None
    control_images: str = _WITHOUT
    elsewhere: float = 0.0
    variety: float = 0.0

    @property
    def pairs(self) -> int:
        """Number of pairs of images."""
        return len(self.hosts)

    @property
    def proposal(self) -> Proposal:
        """What was tested."""
        return self.screening.proposal

    @property
    def p(self) -> float:
        """The largest of three p values: images of the class form two groups, it is more frequent in the class than in
        others, and the effect beyond controls matters.

        1 if half of the other places have such groups as well.
        """
        if self.elsewhere >= ELSEWHERE:
            return 1.0
        return max(self.screening.p, self.p_share, self.excess.p_above(MARGIN))


def screen(
    predictor: Predictor,
    asked: Asked,
    proposal: Proposal,
    hosts: int,
    generator: torch.Generator,
    rule: Rule | None = None,
    keep: Tensor | None = None,
    most: int | None = None,
    fewer_hosts: int | None = None,
) -> Screening:
    """Paste what is proposed from every image of the class into the same images. Pixels in `keep` (H,W) stay.

    Without a rule, the one with the clearest groups is chosen. With `most`, no more images of the class are used. With
    `fewer_hosts`, that many hosts suffice if the statistics of the rule show that there are no two groups.
    """
    members = asked.members(proposal.class_index)[:most]
    others = asked.some_others(proposal.class_index, OTHERS_PER_IMAGE * len(members), generator)
    if proposal.shared:  # as many of each, without repeats
        members = torch.cat([members[: len(others)], others[: len(members)]])
    statistics = proposal.statistics(asked.half.images[members]).double()
    if fewer_hosts is not None and rule is not None and rule.p_by_statistics(statistics) >= LEVEL:
        hosts = fewer_hosts
    same = asked.hosts(proposal.class_index, hosts, generator)
    pairs = asked.crossed(proposal.class_index, members, same)
    responses = _responses(predictor, pairs, same, proposal.intervention(pairs), keep)
    if rule is None:
        usual = proposal.statistics(asked.half.images[others]).double()
        if not proposal.shared:
            rule = clearest_rule(responses, statistics, usual)
        elif (rule := shared_rule(statistics.chunk(2)[0], usual)) is None:
            contains = torch.arange(len(members)) < len(members) // 2
            return Screening(proposal, members, responses, Rule(None, True), contains, 0.0, 1.0, 0.0, same)
    contains, groups = rule.split(responses, statistics)
    return Screening(proposal, members, responses, rule, contains, groups.separation, groups.p, groups.border, same)


def run_trial(
    predictor: Predictor,
    asked: Asked,
    screening: Screening,
    count: int,
    p_share: float,
    generator: torch.Generator,
    keep: Tensor | None = None,
) -> Trial:
    """Paste from the images that contain it, and compare with controls on the same hosts.

    The controls are images of the class that don't contain it, and images of other classes.
    """
    pairs = asked.pairs(screening.proposal.class_index, screening.carriers, count, generator)
    return trial_on(predictor, pairs, screening, p_share, generator, keep)


def trial_on(
    predictor: Predictor,
    pairs: Pairs,
    screening: Screening,
    p_share: float,
    generator: torch.Generator,
    keep: Tensor | None = None,
) -> Trial:
    """The trial of `run_trial` on these pairs."""
    proposal = screening.proposal
    main = change(predictor, pairs, proposal.intervention(pairs), keep)
    without = pairs.with_donors(screening.members[~screening.contains], generator)
    others = pairs.with_donors(pairs.asked.others(pairs.class_index), generator)
    controls = [
        (change(predictor, each, proposal.intervention(each), keep), each.donors, name)
        for each, name in ((without, _WITHOUT), (others, _OTHERS))
    ]
    strongest, donors, name = max(controls, key=lambda control: control[0].mean)
    effect = Mean.over_groups(main.probability, pairs.donors)
    return Trial(
        screening,
        effect,
        strongest.mean,
        effect.minus(Mean.over_groups(strongest.probability, donors)),
        main.turned_share,
        strongest.turned_share,
        p_share,
        pairs.hosts,
        pairs.donors,
        main.probability,
        None if keep is None else keep.clone(),
        name,
    )


def variety(screening: Screening, images: Tensor) -> float:
    """Variance of what images with the pattern look like, relative to those without it.

    Images with a pattern have it in common, images without it don't.
    """
    looks = screening.proposal.look(images[screening.members]).double()
    own, others = (looks[chosen].var(dim=0).mean() for chosen in (screening.contains, ~screening.contains))
    return float(own / others.clamp_min(1e-12))


def groups_elsewhere(predictor: Predictor, asked: Asked, screening: Screening, keep: Tensor | None = None) -> float:
    """Share of other places of equal size where images of the class form two groups with half of the gap or more.

    An object that moves is inside a region or not, at every place.
    """
    pairs = asked.crossed(screening.proposal.class_index, screening.members, screening.hosts)
    places = screening.proposal.controls(pairs)
    groups = [Groups.of(_responses(predictor, pairs, screening.hosts, place, keep)) for place in places]
    return sum(each.p < LEVEL and each.gap > screening.gap / 2 for each in groups) / max(1, len(places))


def p_more_often(
    predictor: Predictor, asked: Asked, screening: Screening, generator: torch.Generator, keep: Tensor | None = None
) -> float:
    """The p value of its share in the class, against as many images of other classes, pasted into the same hosts.

    A pattern that all classes have equally often may still change predictions, but it doesn't stand for a class.
    """
    proposal = screening.proposal
    if proposal.shared:
        own, rest = (int(part.sum()) for part in screening.contains.chunk(2))
        shared = own > (1 - LEAST_SHARE) * screening.of_class and rest < LEAST_SHARE * screening.of_class
        return p_share_above(own, rest, screening.of_class) if shared else 1.0
    others = evenly(asked.others(proposal.class_index), len(screening.members), generator)
    statistics = proposal.statistics(asked.half.images[others]).double()
    responses = torch.zeros(len(others), dtype=torch.float64)  # a rule with statistics doesn't use them
    if screening.rule.weights is None:
        pairs = asked.crossed(proposal.class_index, others, screening.hosts)
        responses = _responses(predictor, pairs, screening.hosts, proposal.intervention(pairs), keep)
    having = screening.rule.contained(screening.border, responses, statistics)
    return p_share_above(int(screening.contains.sum()), int(having.sum()), len(others))


def _responses(
    predictor: Predictor, pairs: Pairs, hosts: Tensor, intervention: Intervention, keep: Tensor | None
) -> Tensor:
    """Mean change of the log-odds (M,) for each donor, of pairs of every donor with the same hosts."""
    changes = change(predictor, pairs, intervention, keep).log_odds
    return changes.reshape(-1, len(hosts)).mean(dim=1)
