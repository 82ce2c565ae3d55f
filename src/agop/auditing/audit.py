"""audit(): propose what may decide a class, test it by interventions, and report what beats its controls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.finding import Finding, class_label, sentence
from agop.auditing.intervals import holm, quantile
from agop.auditing.pool import ENOUGH_IMAGES, Pool, read_pool
from agop.auditing.predictor import Asked, Predictor, change
from agop.auditing.prevalence import containing
from agop.auditing.priors import Priors
from agop.auditing.result import Audit, table_rows
from agop.auditing.searching import Search
from agop.auditing.trial import MARGIN, Trial
from agop.errors import InputError
from agop.interventions.remove import Remove
from agop.model.probe import probing, rows_for, unwrapped
from agop.statistic.agop import AGOP

# Probability of a false alarm in an audit, after Holm's correction.
_LEVEL = 0.05
# An accuracy is like chance if it is less than a tenth of the way from 1/classes to 1.
_CHANCE_GAIN = 0.1


def audit(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    labels: Any = None,
    prior: AGOP | None = None,
    *,
    class_names: Sequence[str] = (),
    per_class: int = 200,
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
) -> Audit:
    """Which regions and properties of images decide a class, although they shouldn't.

    `images` is a tensor (N,C,H,W) with `labels`, or a loader of (images, labels), which is read once. At most
    `per_class` images of each class are kept. Half of them propose regions, patches and properties, the other half
    tests each by an intervention. Without a prior per class, one is computed.
    """
    if per_class < ENOUGH_IMAGES:
        raise InputError(f"per_class is {per_class}: give at least {ENOUGH_IMAGES}")
    pool = read_pool(model, images, labels, per_class, seed, progress=progress)
    names = _names(class_names, prior, pool.classes)
    model, rows = unwrapped(model), rows_for(pool.images, batch_size, model)
    first, second = pool.halves()
    with probing(model) as probe:
        predictor = Predictor(probe, rows)
        proposing, testing = Asked.of(predictor, first), Asked.of(predictor, second)
    right = sum(int((asked.before.argmax(dim=1) == asked.half.labels).sum()) for asked in (proposing, testing))
    accuracy, count, notes = right / len(pool.labels), len(pool.labels), _skipped(pool, names)
    if problem := _chance(accuracy, pool):
        return Audit((), (), accuracy, count, names, (problem, *notes), at_chance=True)
    priors = Priors.of(model, first, prior, rows, progress=progress)
    with probing(model) as probe:
        search = Search(model, Predictor(probe, rows), proposing, testing, priors, seed, progress)
        screened, tested = search.run(pool.audited)
        # What didn't pass the screening was tried as well.
        ps = holm([trial.p for trial in tested] + [1.0] * (len(screened) - len(tested)))[: len(tested)]
        certain = sorted((p, place) for place, p in enumerate(ps) if p < _LEVEL)
        findings = tuple(_finding(search, tested[place], names) for _, place in certain)
    donors = min(int((second.labels == index).sum()) for index in pool.audited)
    table = table_rows(screened, tested, ps, names)
    detectable = _detectable(len(screened), donors)
    return Audit(findings, table, accuracy, count, names, notes, detectable, prior=priors.whole)


def _chance(accuracy: float, pool: Pool) -> str:
    """A problem if the accuracy is like chance, else ""."""
    chance = 1 / len(set(pool.labels.tolist()))
    if accuracy >= chance + _CHANCE_GAIN * (1 - chance):
        return ""
    return (
        f"the model classifies {100 * accuracy:.0f} % of {len(pool.labels):,} images correctly, hardly better than "
        "chance: nothing was tried; check weights, preprocessing and labels"
    )


def _finding(search: Search, trial: Trial, names: Sequence[str]) -> Finding:
    proposal = trial.proposal
    generator = torch.Generator().manual_seed(search.seed)
    contained = containing(search.predictor, search.testing, proposal, generator)
    lost = None
    if proposal.region is not None:
        pairs = search.testing.pairs(proposal.class_index, trial.pairs, generator)
        removed = change(search.predictor, pairs, Remove(proposal.region))
        lost = float(removed.lost.double().mean())
    return Finding(
        proposal.kind,
        proposal.class_index,
        proposal.region,
        trial.effect.value,
        trial.effect.interval,
        trial.control,
        contained.share,
        sentence(trial, names[proposal.class_index], contained.share, lost),
        contained.ranked,
    )


def _names(names: Sequence[str], prior: AGOP | None, classes: int) -> tuple[str, ...]:
    if names and len(names) != classes:
        raise InputError(f"there are {len(names)} class names, the model has {classes} classes: give one per class")
    known = prior.class_names if isinstance(prior, AGOP) else ()
    return tuple(names or (known if len(known) == classes else [f"class {index}" for index in range(classes)]))


def _skipped(pool: Pool, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{class_label(names[index])} was skipped: it has {count} images, an audit needs {ENOUGH_IMAGES}"
        for index, count in pool.skipped.items()
    )


def _detectable(trials: int, donors: int) -> float:
    """The share of images that an all-or-nothing shortcut must change to be found in four of five cases.

    The solution of e = margin + (t(level / trials) + 0.84) · sqrt(e (1 − e) / donors).
    """
    reach = quantile(_LEVEL / trials, max(1, donors - 1)) + 0.84
    effect = 0.5
    for _ in range(100):
        effect = min(1.0, MARGIN + reach * math.sqrt(effect * (1 - effect) / donors))
    return effect
