"""Tests: two groups of images, and the effect of a candidate beside its controls on pairs of images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agop.auditing.candidates import Candidate, PatchCandidate
from agop.auditing.data import Pairs, Predictions
from agop.auditing.groups import Groups, Rule, clearest_rule, shared_rule
from agop.auditing.interventions import Intervention
from agop.auditing.regions import best_matches, box_of, overlap, share_alike
from agop.auditing.thresholds import OTHERS_PER_IMAGE, TEST_HOSTS, TEST_PAIRS, THRESHOLDS
from agop.stats import Mean

# Images that the controls paste from.
_WITHOUT, _OTHERS = "images without it", "images of other classes"
# Images of the pattern that are looked for at other places.
_TEMPLATES = 5


@dataclass(frozen=True, eq=False)
class Screening:
    """A candidate with the response (M,) of the model to each image of the class, and two groups of these images.

    The response is the mean change of the log-odds of the class in the same few images, the `hosts`, whose pixels in
    `keep` (H,W) stay. `contains` (M,) marks the images that contain the candidate's pattern, by the rule. If the class
    shares the pattern, as many images of other classes follow those of the class.
    """

    candidate: Candidate
    predictions: Predictions
    members: Tensor
    responses: Tensor
    rule: Rule
    contains: Tensor
    groups: Groups
    hosts: Tensor
    keep: Tensor | None = None

    @property
    def separation(self) -> float:
        """How clearly the groups are apart."""
        return self.groups.separation

    @property
    def carriers(self) -> Tensor:
        """Positions of the images of the class that contain it."""
        return self.members[: self.of_class][self.contains[: self.of_class]]

    @property
    def of_class(self) -> int:
        """Number of members that are images of the class, which come first."""
        return len(self.members) // 2 if self.candidate.shared else len(self.members)

    @property
    def share(self) -> float:
        """Share of the images of the class that contain it."""
        return float(self.contains[: self.of_class].double().mean())

    @property
    def gap(self) -> float:
        """Mean response to the images that contain it, minus that to the others."""
        return float(self.responses[self.contains].mean() - self.responses[~self.contains].mean())


def screen(
    predictions: Predictions,
    candidate: Candidate,
    hosts: int,
    generator: torch.Generator,
    rule: Rule | None = None,
    keep: Tensor | None = None,
) -> Screening:
    """Paste the candidate from every image of the class into the same images. Pixels in `keep` (H,W) stay.

    Without a rule, the one with the clearest groups is chosen.
    """
    index, images = candidate.class_index, predictions.split.images
    members = predictions.members(index)
    others = predictions.some_others(index, OTHERS_PER_IMAGE * len(members), generator)
    if candidate.shared:  # as many of each, without repeats
        members = torch.cat([members[: len(others)], others[: len(members)]])
    statistics = candidate.statistics(images[members]).double()
    same = predictions.hosts(index, hosts, generator)
    pairs = predictions.crossed(index, members, same)
    responses = _responses(pairs, same, candidate.intervention(pairs), keep)
    if rule is None:
        usual = candidate.statistics(images[others]).double()
        if not candidate.shared:
            rule = clearest_rule(responses, statistics, usual)
        elif (rule := shared_rule(statistics.chunk(2)[0], usual)) is None:
            contains = torch.arange(len(members)) < len(members) // 2
            unclear = Groups(contains, 0.0, 0.0, 0.0)
            return Screening(candidate, predictions, members, responses, Rule(None, True), contains, unclear, same)
    contains, groups = rule.split(responses, statistics)
    return Screening(candidate, predictions, members, responses, rule, contains, groups, same, keep)


def _responses(pairs: Pairs, hosts: Tensor, intervention: Intervention, keep: Tensor | None) -> Tensor:
    """Mean change of the log-odds (M,) for each donor, of pairs of every donor with the same hosts."""
    return pairs.effect(intervention, keep).log_odds.reshape(-1, len(hosts)).mean(dim=1)


@dataclass(frozen=True, eq=False)
class Trial:
    """A tested candidate: the mean change of P(class), the strongest control, and what is beyond that control.

    `first` is its screening on the half that proposed it, `screening` that on the half that tests. `turned` is the
    share of images that became the class, `control_turned` that of the strongest control, which pasted from
    `control_images`. `p_share` is the p value of its share in the class, against that in other classes. `changes` (N,)
    are those of P(class) in the pairs. `moved` is the share of images without it that have it at another place.
    `variety` is how much images with it vary, relative to those without it.
    """

    first: Screening
    screening: Screening
    pairs: Pairs
    effect: Mean
    control: float
    excess: Mean
    turned: float
    control_turned: float
    control_images: str
    p_share: float
    changes: Tensor
    moved: float = 0.0
    variety: float = 0.0

    @property
    def candidate(self) -> Candidate:
        """What was tested."""
        return self.screening.candidate

    @property
    def p(self) -> float:
        """The largest of three p values: images of the class form two groups, it is more frequent in the class than in
        others, and the effect beyond controls matters.

        1 if half of the images without it have it at another place.
        """
        if self.moved >= 0.5:
            return 1.0
        return max(self.screening.groups.p, self.p_share, self.excess.p_above(THRESHOLDS.margin))


def run_test(
    predictions: Predictions, first: Screening, keep: Tensor | None, generator: torch.Generator
) -> Trial | Screening:
    """Test a screened candidate on other images, whose pixels in `keep` (H,W) stay.

    The result is the second screening if the images of the class don't form two groups there.
    """
    screening = screen(predictions, first.candidate, TEST_HOSTS, generator, first.rule, keep)
    if screening.groups.p >= THRESHOLDS.close or screening.gap < THRESHOLDS.gap:
        return screening
    p_share = p_more_often(screening, generator)
    pairs = predictions.pairs(first.candidate.class_index, screening.carriers, TEST_PAIRS, generator)
    trial = trial_on(pairs, first, screening, p_share, generator)
    if trial.p >= THRESHOLDS.close:
        return trial
    return replace(trial, moved=share_that_moved(screening), variety=variety(screening))


def trial_on(pairs: Pairs, first: Screening, screening: Screening, p_share: float, generator: torch.Generator) -> Trial:
    """Paste from the images that contain the pattern, and compare with controls on the same hosts.

    The controls are images of the class that don't contain it, and images of other classes.
    """
    candidate, keep = screening.candidate, screening.keep
    main = pairs.effect(candidate.intervention(pairs), keep)
    without = pairs.with_donors(screening.members[~screening.contains], generator)
    others = pairs.with_donors(pairs.predictions.others(pairs.class_index), generator)
    controls = [
        (each.effect(candidate.intervention(each), keep), each.donors, name)
        for each, name in ((without, _WITHOUT), (others, _OTHERS))
    ]
    strongest, donors, name = max(controls, key=lambda control: control[0].mean)
    effect = Mean.over_groups(main.probability, pairs.donors)
    excess = effect.minus(Mean.over_groups(strongest.probability, donors))
    turned, control_turned = (float(each.turned.double().mean()) for each in (main, strongest))
    return Trial(
        first, screening, pairs, effect, strongest.mean, excess, turned, control_turned, name, p_share, main.probability
    )


def p_more_often(screening: Screening, generator: torch.Generator) -> float:
    """The p value of its share in the class, against images of other classes, pasted into the same hosts.

    By Fisher's exact test, a permutation of the class labels. A pattern that all classes have equally often may still
    change predictions, but it doesn't stand for a class.
    """
    from scipy.stats import fisher_exact

    candidate, predictions = screening.candidate, screening.predictions
    own, few = screening.contains[: screening.of_class], THRESHOLDS.negligible
    if candidate.shared:
        having = screening.contains[screening.of_class :]
        if own.double().mean() <= 1 - few or having.double().mean() >= few:
            return 1.0
    else:
        others = predictions.some_others(candidate.class_index, len(screening.members), generator)
        statistics = candidate.statistics(predictions.split.images[others]).double()
        responses = torch.zeros(len(others), dtype=torch.float64)  # a rule with statistics doesn't use them
        if screening.rule.weights is None:
            pairs = predictions.crossed(candidate.class_index, others, screening.hosts)
            responses = _responses(pairs, screening.hosts, candidate.intervention(pairs), screening.keep)
        having = screening.rule.contained(screening.groups.border, responses, statistics)
    counts = [[int(part.sum()), int((~part).sum())] for part in (own, having)]
    return float(fisher_exact(counts, alternative="greater").pvalue)


def share_that_moved(screening: Screening) -> float:
    """Share of the images without the region's pattern that have it at another place: the object itself.

    Compared with what this place looks like in images without the pattern.
    """
    if screening.candidate.region is None:
        return 0.0
    box, order = box_of(screening.candidate.region), screening.responses.argsort(descending=True)
    contains, images = screening.contains[order], screening.predictions.split.images[screening.members[order]]
    containing, without = images[contains], images[~contains].flip(0)
    patches, usual = (
        each[:_TEMPLATES, :, box.top : box.bottom, box.left : box.right] for each in (containing, without)
    )
    return share_alike(without, patches, usual)


def variety(screening: Screening) -> float:
    """Variance of what images with the pattern look like, relative to those without it.

    Images with a pattern have it in common, images without it don't. Of a region, the pixels are compared.
    """
    candidate, images = screening.candidate, screening.predictions.split.images[screening.members]
    region = candidate.region
    looks = (candidate.statistics(images) if region is None else images[:, :, region].flatten(1)).double()
    own, others = (looks[chosen].var(dim=0).mean() for chosen in (screening.contains, ~screening.contains))
    return float(own / others.clamp_min(1e-12))


def without_absences(trials: Sequence[Trial]) -> list[Trial]:
    """The trials without those that say of one class what another trial says of the other class.

    Of two such trials, that one stays whose images with the pattern look more alike, compared with the others of the
    class: images with a pattern have it in common, images without it don't.
    """
    return [
        trial for trial in trials if not any(_same(trial, other) and other.variety < trial.variety for other in trials)
    ]


def _same(first: Trial, second: Trial) -> bool:
    a, b = first.candidate, second.candidate
    if a.kind != b.kind or a.class_index == b.class_index:
        return False
    if isinstance(a, PatchCandidate) and isinstance(b, PatchCandidate):
        return float(best_matches(a.template[None], b.template[None]).correlation) >= THRESHOLDS.alike
    return a.region is None or b.region is None or overlap(a.region, b.region) > 0
