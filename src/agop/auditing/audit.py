"""audit(): propose what may decide a class, test it by interventions, and report what beats its controls."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from agop.auditing.comparing import compare
from agop.auditing.cost import cost_in_words
from agop.auditing.examining import Settings, Subject, examined
from agop.auditing.finding import class_label
from agop.auditing.intervals import quantile
from agop.auditing.pool import ENOUGH_IMAGES, Pool, read_pool
from agop.auditing.priors import check_type
from agop.auditing.reliance import Reliance
from agop.auditing.result import Audit, table_rows
from agop.auditing.searching import TEST_PAIRS
from agop.auditing.selecting import compare_on_halves
from agop.auditing.stages import kept_stages, remove_stages
from agop.auditing.trial import LEVEL, MARGIN
from agop.errors import InputError
from agop.model.targets import like_chance
from agop.statistic.agop import AGOP
from agop.system.progress import say


def audit(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    labels: Any = None,
    prior: AGOP | None = None,
    *,
    against: nn.Module | None = None,
    class_names: Sequence[str] = (),
    per_class: int = 200,
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
    stages: str | os.PathLike[str] | None = None,
) -> Audit:
    """Which regions and properties of images decide a class, although they shouldn't.

    `images` is a tensor (N,C,H,W) with `labels`, or a loader of (images, labels), which is read once. At most
    `per_class` images of each class are kept. Half of them propose regions, patches and properties, the other half
    tests each by an intervention. Without a prior per class, one is computed.

    With `against`, another model of the same classes is searched as well, and what is found in either model is tested
    on both. With `stages`, finished stages are kept in that folder, so that an interrupted audit resumes.
    """
    settings = Settings(seed, progress, None if stages is None else Path(stages))
    result = run_audit(model, images, labels, prior, against, class_names, per_class, batch_size, settings)
    remove_stages(settings.stages)
    return result


def run_audit(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    labels: Any,
    prior: AGOP | None,
    against: nn.Module | None,
    class_names: Sequence[str],
    per_class: int,
    batch_size: int | None,
    settings: Settings,
) -> Audit:
    """The audit of `audit()`. Finished stages stay in their folder."""
    seed, progress = settings.seed, settings.progress
    check_type(prior)
    if per_class < ENOUGH_IMAGES:
        raise InputError(f"per_class is {per_class}: give at least {ENOUGH_IMAGES}")
    pool = read_pool(model, images, labels, per_class, seed, prior, progress=progress)
    names = _names(class_names, prior, pool.classes)
    subject = Subject.of(model, pool, batch_size)
    other = None if against is None else Subject.of(against, pool, batch_size)
    accuracy, count, notes = subject.accuracy, len(pool.labels), _skipped(pool, names)
    if problem := _chance(subject, pool, "the model", "nothing was tried"):
        return Audit((), (), accuracy, count, names, (problem, *notes), at_chance=True)
    if other is not None and (problem := _chance(other, pool, "the other model", "nothing was compared")):
        notes, other = (problem, *notes), None
    say(cost_in_words(pool, [subject] if other is None else [subject, other]), show=progress)
    if settings.stages is not None and (kept := kept_stages(settings.stages)):
        say(f"resuming from {settings.stages} ({kept}), unless the options have changed", show=progress)
    comparison = None
    with examined(subject, pool, prior, names, settings) as first:
        if other is not None:
            with examined(other, pool, None, names, settings) as second:
                comparison = compare(first, second, other.accuracy, names)
    priors, halves = first.search.screener.priors, (subject.proposing.half, subject.testing.half)
    selection, reason = compare_on_halves(subject.model, *halves, priors, subject.rows, seed, progress=progress)
    reliance = Reliance.of(subject.model, halves[0], priors, names, subject.rows, seed)
    findings = tuple(finding for _, finding in first.findings)
    table = table_rows(first, names)
    tests = max(1, len(first.tested) + len(first.without_groups))
    return Audit(
        findings, table, accuracy, count, names, (*notes, *reason), detectable(tests, _donors(pool)),
        prior=priors.whole, comparison=comparison, selection=selection, reliance=reliance,
    )  # fmt: skip


def _chance(subject: Subject, pool: Pool, name: str, consequence: str) -> str:
    """A problem if the mean accuracy of the classes is like chance, else ""."""
    accuracy = subject.accuracy_by_class
    if not like_chance(accuracy, len(set(pool.labels.tolist()))):
        return ""
    return (
        f"{name} classifies {100 * accuracy:.0f} % of the images correctly (mean of the classes, "
        f"{len(pool.labels):,} images), hardly better than chance: {consequence}; check weights, preprocessing and "
        "labels"
    )


def _names(names: Sequence[str], prior: AGOP | None, classes: int) -> tuple[str, ...]:
    if names and len(names) != classes:
        raise InputError(f"there are {len(names)} class names, the model has {classes} classes: give one per class")
    known = () if prior is None else prior.class_names
    return tuple(names or (known if len(known) == classes else [f"class {index}" for index in range(classes)]))


def _skipped(pool: Pool, names: Sequence[str]) -> tuple[str, ...]:
    """What can't be judged: classes with too few images, and classes beside too few images of others."""
    notes = [
        f"{class_label(names[index])} was skipped: it has {count} images, an audit needs {ENOUGH_IMAGES}"
        for index, count in pool.skipped.items()
        if count
    ]
    if empty := sum(not count for count in pool.skipped.values()):
        notes.append(f"classes without images were skipped: {empty}")
    for index in pool.audited:
        if (others := int((pool.labels != index).sum())) < ENOUGH_IMAGES:
            notes.append(
                f"{class_label(names[index])} is hard to judge: there are {others} images of other classes, give "
                f"{ENOUGH_IMAGES} or more"
            )
    return tuple(notes)


def _donors(pool: Pool) -> int:
    """Images that are pasted into others, of the smallest class, if half of its images contain a pattern."""
    counts = [int((pool.labels == index).sum()) for index in pool.audited]
    return min(min(count // 4, (len(pool.labels) - count) // 2, TEST_PAIRS) for count in counts)


def detectable(tests: int, donors: int) -> float:
    """The effect that an all-or-nothing shortcut needs to be found in four of five cases, by bisection.

    The solution of e = margin + (t(level / tests) + 0.84) · sqrt(e (1 − e) / donors).
    """
    reach = (quantile(LEVEL / tests, max(1, donors - 1)) + 0.84) / math.sqrt(max(1, donors))
    low, high = MARGIN, 1.0
    for _ in range(50):
        effect = (low + high) / 2
        enough = effect > MARGIN + reach * math.sqrt(effect * (1 - effect))
        low, high = (low, effect) if enough else (effect, high)
    return high
