"""Examine a model: search for what decides a class, and keep what is certain as findings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from agop.auditing.absences import without_absences
from agop.auditing.containing import Containing
from agop.auditing.finding import Finding, sentence
from agop.auditing.intervals import holm
from agop.auditing.pool import Pool
from agop.auditing.predictor import Asked, Pairs, Predictor, change
from agop.auditing.priors import Priors
from agop.auditing.screener import Screener
from agop.auditing.searching import Search
from agop.auditing.stages import Stages
from agop.auditing.trial import LEVEL, Screening, Trial
from agop.errors import InputError
from agop.explaining.explain import explain
from agop.interventions.remove import Remove
from agop.model.probe import check_model, probing, rows_for, unwrapped
from agop.statistic.agop import AGOP
from agop.statistic.fitting import prepare_if_equal
from agop.system.progress import track


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with its predictions for both halves of the images. `seconds` is the time of a forward pass per image.

    `fast` gives the same logits, with batch norms folded into convolutions if it has some.
    """

    model: nn.Module
    fast: nn.Module
    rows: int
    proposing: Asked
    testing: Asked
    seconds: float

    @classmethod
    def of(cls, model: nn.Module, pool: Pool, batch_size: int | None) -> Subject:
        """The model's predictions for the images."""
        check_model(model)
        model = unwrapped(model)
        rows = rows_for(pool.images, batch_size, model)
        fast = prepare_if_equal(model, pool.images[:1], rows)
        with probing(fast) as probe:
            predictor, start = Predictor(probe, rows), time.perf_counter()
            first, second = (Asked.of(predictor, half) for half in pool.halves())
        classes = first.before.shape[1]
        if classes != pool.classes:
            raise InputError(f"the models have {pool.classes} and {classes} classes: give models of the same classes")
        return cls(model, fast, rows, first, second, (time.perf_counter() - start) / len(pool.labels))

    @property
    def accuracy(self) -> float:
        """Share of the images that are classified correctly."""
        return float(self._right()[0].double().mean())

    @property
    def accuracy_by_class(self) -> float:
        """Mean accuracy of the classes: a model that always predicts the largest class isn't better than chance."""
        right, labels = self._right()
        classes = set(labels.tolist())
        return sum(float(right[labels == index].double().mean()) for index in classes) / len(classes)

    def _right(self) -> tuple[Tensor, Tensor]:
        """Which images (N,) are classified correctly, and their labels (N,)."""
        halves = (self.proposing, self.testing)
        labels = torch.cat([asked.half.labels for asked in halves])
        return torch.cat([asked.before.argmax(dim=1) for asked in halves]) == labels, labels


@dataclass(frozen=True)
class Settings:
    """Options of an audit. `stages` is the folder of the stages, if it can be resumed."""

    seed: int
    progress: bool
    stages: Path | None


@dataclass(frozen=True, eq=False)
class Examined:
    """The search of a model, its trials with corrected p values, and the findings with their trials.

    `without_groups` was tested as well, but the images of the second half form no two groups.
    """

    search: Search
    screened: list[Screening]
    tested: list[Trial]
    without_groups: list[Screening]
    ps: list[float]
    findings: list[tuple[Trial, Finding]]


@contextmanager
def examined(
    subject: Subject, pool: Pool, prior: AGOP | None, names: Sequence[str], settings: Settings
) -> Iterator[Examined]:
    """Search, and keep the model ready for further interventions."""
    model, rows, seed = subject.model, subject.rows, settings.seed
    stages = Stages.of(settings.stages, model, pool, prior, seed=seed, rows=rows)
    half = subject.proposing.half
    priors = Priors.of(model, half, prior, rows, progress=settings.progress, stages=stages)
    with probing(subject.fast) as probe:
        predictor = Predictor(probe, rows)
        screener = Screener(model, predictor, subject.proposing, priors, seed)
        search = Search(screener, subject.testing, settings.progress, stages)
        screened, tested, without_groups = search.run(pool.audited)
        # The first half chose what is tested on the second.
        ps = holm([trial.p for trial in tested] + [1.0] * len(without_groups))[: len(tested)]
        certain = [tested[place] for p, place in sorted((p, place) for place, p in enumerate(ps)) if p < LEVEL]
        if len(pool.audited) == 2:
            certain = without_absences(certain)
        described = track(certain, "describing findings", show=settings.progress)
        findings = [(trial, _finding(search, trial, names)) for trial in described]
        yield Examined(search, screened, tested, without_groups, ps, findings)


def _finding(search: Search, trial: Trial, names: Sequence[str]) -> Finding:
    proposal, screening, screener = trial.proposal, trial.screening, search.screener
    prior, rows, lost = screener.priors.whole, screener.predictor.rows, None
    if proposal.region is not None:
        pairs = Pairs(search.testing, proposal.class_index, trial.hosts, trial.donors)
        lost = float(change(screener.predictor, pairs, Remove(proposal.region)).lost.double().mean())
    first = search.screened_again(trial)
    contained = Containing.of(search.testing, screening).joined(Containing.of(screener.proposing, first))
    maps = explain(
        screener.model, contained.ranked, "agop-weighted", prior, proposal.class_index, batch_size=rows, nan="skip",
        output=prior.provenance.output,
    )  # fmt: skip
    return Finding(
        proposal.kind,
        proposal.class_index,
        proposal.outline(screener.size),
        trial.effect.value,
        trial.effect.interval,
        trial.control,
        contained.share,
        sentence(trial, names[proposal.class_index], contained, lost),
        contained,
        maps.nan_to_num(),
    )
