"""audit(): sample → candidates → screened once → refined → tested on the other half → findings."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.candidates import BORDER, PATCH, border_of
from agop.auditing.data import AuditedModel, ImageSample, class_label, read_sample
from agop.auditing.findings import Audit, Compared, Comparison, Containing, Finding, sentence, subject_in_words
from agop.auditing.interventions import Remove
from agop.auditing.regions import ends_of, overlap
from agop.auditing.reliance import Reliance
from agop.auditing.search import Search, SearchResult
from agop.auditing.subgroups import names_of, subgroups
from agop.auditing.tests import Screening, Trial, trial_on, without_absences
from agop.auditing.thresholds import IMAGES_OF_A_CLASS, TEST_PAIRS, THRESHOLDS
from agop.errors import InputError
from agop.evaluation.select import Priors, select_on_halves
from agop.explanation import check_type
from agop.model.state import fingerprint
from agop.prior.agop import AGOP
from agop.processes import track
from agop.stats import Mean, at_chance, finite, quantile


def audit(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    labels: Any = None,
    prior: AGOP | None = None,
    *,
    against: nn.Module | None = None,
    class_names: Sequence[str] = (),
    groups: Mapping[str, str] | Sequence[Any] | None = None,
    per_class: int | None = None,
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
) -> Audit:
    """Which regions and properties of images decide a class, although they shouldn't.

    Half of the images propose regions, patches and properties, the other half tests each by an intervention.

    Args:
        model: The classifier.
        images: A tensor (N,C,H,W) with `labels`, or a loader of (images, labels), which is read once.
        labels: Classes (N,) of a tensor of images.
        prior: The model's AGOP per class; computed if None.
        against: Another model of the same classes. It is searched as well, and what is found in either model is tested
            on both.
        class_names: Names of the classes, for sentences; by default those of the prior.
        groups: What else is known of each image, such as its camera: a sequence in the order of the images, or a
            mapping from their paths. Whether the model decides by it is tested as well.
        per_class: Images of each class that are kept, at most; by default 200 to 600, the more the faster the model.
        batch_size: Images per pass.
        progress: Show progress bars.
        seed: Chooses images and controls.

    Returns:
        An `Audit`: its `findings`, most certain first, and the table of everything that was tried.

    Raises:
        InputError: Images or labels can't be used, or there are too few.
        PriorError: The prior is for other images or classes.
        ModelError: The model's outputs are NaN.

    Example:
        >>> result = agop.audit(model, images, labels)
        >>> print(result.summary())
    """
    check_type(prior)
    if per_class is not None and per_class < IMAGES_OF_A_CLASS:
        raise InputError(f"per_class is {per_class}: give at least {IMAGES_OF_A_CLASS}")
    sample = read_sample(model, images, labels, per_class, seed, prior, progress=progress)
    names = _names(class_names, prior, sample.classes)
    notes = _notes(sample, names)
    known = None if groups is None else names_of(groups, sample)
    with ExitStack() as stack:
        audited = stack.enter_context(AuditedModel.of(model, sample, batch_size))
        other = None if against is None else stack.enter_context(AuditedModel.of(against, sample, batch_size))
        accuracy, count = audited.accuracy, len(sample.labels)
        if problem := chance(audited, sample, "the model", "nothing was tried"):
            return Audit((), (), accuracy, count, names, (problem, *notes), at_chance=True)
        if other is not None and (problem := chance(other, sample, "the other model", "nothing was compared")):
            notes, other = (problem, *notes), None
        examined = examine(audited, sample, prior, names, seed, progress=progress)
        decisive = subgroups(audited, known, names, seed) if known else ()
        comparison = None
        if other is not None:
            second = examine(other, sample, None, names, seed, progress=progress)
            found = [(trial, finding, False) for trial, finding in examined.findings]
            found += [(*entry, True) for entry in second.findings if not _is_among(entry[1], examined)]
            models = audited, other
            tested = tuple(compared(models, trial, each, names, seed, of_other=own) for trial, each, own in found)
            comparison = Comparison(other.accuracy, tested)
    proposing, testing, priors, rows = audited.first.split, audited.second.split, examined.priors, audited.first.rows
    selection, reason = select_on_halves(
        audited.model, proposing.images, testing.images, testing.labels, priors, rows, seed, progress=progress
    )
    # Images that are pasted into others, of the smallest class, if half of its images contain a pattern.
    sizes = [int((sample.labels == index).sum()) for index in sample.audited]
    donors = min(min(size // 4, (count - size) // 2, TEST_PAIRS) for size in sizes)
    return Audit(
        tuple(finding for _, finding in examined.findings),
        _table(examined.result, names),
        accuracy,
        count,
        names,
        (*notes, *reason),
        detectable(max(1, examined.result.tests), donors),
        close=tuple(_close(examined.result, sample, names)),
        prior=priors.whole,
        comparison=comparison,
        selection=selection,
        reliance=Reliance.of(audited.model, priors, names),
        subgroups=decisive,
        groups=known or {},
        fingerprint=fingerprint(model),
        per_class=per_class,
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class Examined:
    """A model with its priors, the result of the search, and the findings with their trials."""

    audited: AuditedModel
    priors: Priors
    result: SearchResult
    findings: list[tuple[Trial, Finding]]


def examine(
    audited: AuditedModel, sample: ImageSample, prior: AGOP | None, names: Sequence[str], seed: int, *, progress: bool
) -> Examined:
    """Search in the model, and describe what is certain."""
    split = audited.first.split
    priors = Priors.of(audited.model, split.images, split.labels, prior, audited.first.rows, progress=progress)
    result = Search(audited, priors, seed).run(sample.audited, progress=progress)
    certain = without_absences(result.certain) if len(sample.audited) == 2 else result.certain
    described = track(certain, "describing findings", show=progress)
    findings = [(trial, _finding(audited, priors.whole, trial, names)) for trial in described]
    return Examined(audited, priors, result, findings)


def _finding(audited: AuditedModel, prior: AGOP, trial: Trial, names: Sequence[str]) -> Finding:
    candidate, outline, lost = trial.candidate, trial.candidate.region, None
    if outline is not None:
        lost = float(trial.pairs.effect(Remove(outline)).lost.double().mean())
    elif candidate.kind == BORDER and (border := border_of(size := audited.first.split.size)):
        outline = border.region(*size)
    index, contained, effect = candidate.class_index, Containing.of(trial.screening, trial.first), trial.effect
    text = sentence(trial, names[index], contained, lost)
    maps = audited.maps(contained.ranked, index, prior)
    median = int(trial.changes.argsort()[len(trial.changes) // 2])
    example = trial.pairs.example(candidate.intervention(trial.pairs), trial.screening.keep, median)
    return Finding(
        candidate.kind, index, outline, effect.value, effect.interval, trial.control, contained.share, text, contained,
        maps, example, candidate, trial.first.rule,
    )  # fmt: skip


def _names(names: Sequence[str], prior: AGOP | None, classes: int) -> tuple[str, ...]:
    if names and len(names) != classes:
        raise InputError(f"there are {len(names)} class names, the model has {classes} classes: give one per class")
    known = () if prior is None else prior.class_names
    return tuple(names or (known if len(known) == classes else [f"class {index}" for index in range(classes)]))


def _notes(sample: ImageSample, names: Sequence[str]) -> tuple[str, ...]:
    """What can't be judged: classes with too few images, and classes beside too few images of others."""
    enough = IMAGES_OF_A_CLASS
    notes = [
        f"{class_label(names[index])} was skipped: it has {count} images, an audit needs {enough}"
        for index, count in sample.skipped.items()
        if count
    ]
    if empty := sum(not count for count in sample.skipped.values()):
        notes.append(f"classes without images were skipped: {empty}")
    for index in sample.audited:
        if (others := int((sample.labels != index).sum())) < enough:
            notes.append(
                f"{class_label(names[index])} is hard to judge: there are {others} images of other classes, give "
                f"{enough} or more"
            )
    return tuple(notes)


def chance(audited: AuditedModel, sample: ImageSample, name: str, consequence: str) -> str:
    """A problem if the model classifies no more images correctly than are in the largest class, else ""."""
    count, majority = len(sample.labels), int(sample.labels.bincount().max())
    correct = round(audited.accuracy * count)
    if not at_chance(correct, count, majority, sample.classes):
        return ""
    doubt, fix = "hardly better than chance", "check weights, preprocessing and labels"
    if len(set(sample.labels.tolist())) == 2 and not at_chance(count - correct, count, majority, 2):
        doubt, fix = "far below chance", "are the class folders swapped?"
    share = f"{100 * audited.accuracy:.0f} % of {count:,} images correctly, {doubt}"
    return f"{name} classifies {share}: {consequence}; {fix}"


def detectable(tests: int, donors: int) -> float:
    """The effect that an all-or-nothing shortcut needs to be found in four of five cases, by bisection.

    The solution of e = margin + (t(level / tests) + 0.84) · sqrt(e (1 − e) / donors).
    """
    margin = THRESHOLDS.margin
    reach = (quantile(THRESHOLDS.level / tests, max(1, donors - 1)) + 0.84) / math.sqrt(max(1, donors))
    low, high = margin, 1.0
    for _ in range(50):
        effect = (low + high) / 2
        enough = effect > margin + reach * math.sqrt(effect * (1 - effect))
        low, high = (low, effect) if enough else (effect, high)
    return high


def _close(result: SearchResult, sample: ImageSample, names: Sequence[str]) -> Iterator[str]:
    """A sentence per test that more images may make significant."""
    for trial, p in sorted(zip(result.trials, result.ps, strict=True), key=lambda pair: pair[1]):
        index = trial.candidate.class_index
        kept, seen = int((sample.labels == index).sum()), sample.seen[index]
        if THRESHOLDS.level <= p < THRESHOLDS.close and trial.excess.value > THRESHOLDS.margin:
            more = f"per_class={min(2 * kept, seen)}" if seen > kept else f"the data has only {seen}"
            yield (
                f"Close: {subject_in_words(trial.candidate)}, {class_label(names[index])}: effect "
                f"{trial.effect.value:.2f} (from {trial.control_images}: {trial.control:.2f}), p {p:.3f}. More than "
                f"{kept} images of the class may decide: {more}."
            )


def _table(result: SearchResult, names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """A row per test, with its corrected p value, and per screening, as JSON values; None for what wasn't measured."""
    measured = ("effect", "interval", "control", "turned", "control_turned", "pairs", "p")

    def row(screening: Screening, stage: str) -> dict[str, Any]:
        candidate = screening.candidate
        return {
            "stage": stage,
            "kind": candidate.kind,
            "class_index": candidate.class_index,
            "class": names[candidate.class_index],
            "source": candidate.source,
            "region": ends_of(candidate.region),
            "separation": screening.separation,
            "gap": screening.gap,
            "share": screening.share,
            **dict.fromkeys(measured),
        }

    rows = [
        row(trial.screening, "test")
        | {
            "effect": trial.effect.value,
            "interval": [finite(end) for end in trial.effect.interval],
            "control": trial.control,
            "turned": trial.turned,
            "control_turned": trial.control_turned,
            "pairs": len(trial.changes),
            "p": p,
        }
        for trial, p in zip(result.trials, result.ps, strict=True)
    ]
    rows += [row(each, "test") | {"p": 1.0} for each in result.without_groups]
    return tuple(rows + [row(each, "screening") for each in result.screened])


REMOVED, REDUCED, UNCHANGED, UNCLEAR, STRONGER, NEW = "removed", "reduced", "unchanged", "unclear", "stronger", "new"


def _is_among(finding: Finding, examined: Examined) -> bool:
    """True if the other model has the same finding. Another patch that moves may look different."""
    for _, other in examined.findings:
        if finding.kind != PATCH and (other.kind, other.class_index) == (finding.kind, finding.class_index):
            if finding.region is None or other.region is None:
                return True
            if overlap(other.region, finding.region) > THRESHOLDS.negligible:
                return True
    return False


def compared(
    models: tuple[AuditedModel, AuditedModel],
    trial: Trial,
    finding: Finding,
    names: Sequence[str],
    seed: int,
    *,
    of_other: bool = False,
) -> Compared:
    """A finding, tested on two models with the same pairs of images."""
    index, trials = trial.candidate.class_index, []
    for audited in models:
        pairs = replace(trial.pairs, predictions=audited.second)
        generator = torch.Generator().manual_seed(seed)
        trials.append(trial_on(pairs, trial.first, trial.screening, trial.p_share, generator))
    before, after = (each.effect.value for each in trials)
    difference = Mean.over_groups(trials[1].changes - trials[0].changes, trial.pairs.donors)
    outcome, subject = verdict(difference, *(each.excess for each in trials)), subject_in_words(trial.candidate)
    low, high = difference.interval
    change = f"difference {difference.value:+.2f} [{low:+.2f}, {high:+.2f}]"
    figures = f"effect {before:.2f}, in the other model {after:.2f}, {change}: {outcome}.".replace("-", "−")
    text = f"{subject}, {class_label(names[index])}: {figures}"
    return Compared(finding, subject, of_other, before, after, difference.value, difference.interval, outcome, text)


def verdict(difference: Mean, before: Mean, after: Mean) -> str:
    """What became of an effect, from its paired difference and the effects beyond the controls in both models.

    It is unchanged if the interval of the difference lies within the margin, and unclear if it includes 0 otherwise. An
    effect is absent if it wouldn't be a finding even at the upper end of its interval.
    """
    (low, high), margin = difference.interval, THRESHOLDS.margin
    if -margin < low and high < margin:
        return UNCHANGED
    if low <= 0 <= high or abs(difference.value) < margin:
        return UNCLEAR
    if high < 0:
        return REMOVED if after.interval[1] < margin else REDUCED
    return NEW if before.interval[1] < margin else STRONGER
