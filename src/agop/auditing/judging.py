"""Judge: what a method's maps are worth for a model, on images that its prior hasn't seen."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.priors import Priors
from agop.errors import AGOPWarning, InputError, recorded_warnings
from agop.evaluating.rank_correlation import rank_correlation
from agop.evaluating.sanity_table import Sanity
from agop.evaluating.scoring import Entry, timed_maps
from agop.explaining.explain import explain
from agop.methods import Method, create
from agop.metrics.srg import srg
from agop.model.randomised import copied, layers_from_the_top, randomise

# Images whose maps are compared with those of random weights, and with those of another half of the data.
_COMPARED = 4
# Images that are filled with pixels of the same other image.
_GROUP = 8


@dataclass(frozen=True, eq=False)
class Judged:
    """SRG (N,) of a method's maps, the check with random weights, the stability, and milliseconds per image.

    The stability is NaN for a method whose maps don't depend on data or draws.
    """

    method: str
    scores: Tensor
    sanity: Sanity
    stability: float
    milliseconds: float


@dataclass(frozen=True, eq=False)
class Judge:
    """Images (N,C,H,W) to score with targets (N,), other images that fill deleted pixels, and the priors."""

    model: nn.Module
    images: Tensor
    targets: Tensor
    fill: Tensor
    priors: Priors
    rows: int
    random_model: nn.Module
    seed: int = 0

    @classmethod
    def of(cls, model: nn.Module, images: Tensor, targets: Tensor, fill: Tensor, priors: Priors, rows: int,
           seed: int) -> Judge:  # fmt: skip
        """The judge, with a copy of the model whose weights are all random."""
        names = layers_from_the_top(model, images[:1])
        if not names:
            raise InputError("the model has no parameters, so maps can't be compared with those of random weights")
        network = copied(model)
        for number, name in enumerate(names):
            randomise(network.get_submodule(name), seed + number)
        return cls(model, images, targets, fill, priors, rows, network, seed)

    def judged(self, name: str, method: Method) -> Judged:
        """The method's scores."""
        entry = Entry(method, self.priors.whole)
        maps, milliseconds = timed_maps(
            self.model, self.images, entry, self.targets, self.rows, output=self._output
        )  # fmt: skip
        return Judged(name, self._srg(maps), self._sanity(name, method, maps), self._stability(method), milliseconds)

    def gradient_milliseconds(self) -> float:
        """Milliseconds per image of one gradient: the unit of the costs."""
        return timed_maps(self.model, self.images, Entry(create("vanilla")), self.targets, self.rows)[1]

    @property
    def _output(self) -> str:
        return self.priors.whole.provenance.output

    def _srg(self, maps: Tensor) -> Tensor:
        """SRG (N,) in groups of images, each filled with another image: the same for every method."""
        parts = [slice(start, start + _GROUP) for start in range(0, len(maps), _GROUP)]
        gains = [
            srg(
                self.model, self.images[part], maps[part], self.targets[part], references=self.fill, draws=1,
                seed=self.seed + part.start, batch_size=self.rows,
            )
            for part in parts
        ]  # fmt: skip
        return torch.cat(gains).cpu()

    def _sanity(self, name: str, method: Method, maps: Tensor) -> Sanity:
        """The last step of `agop.sanity`: all weights are random, the prior is that of the trained model."""
        trained = maps[:_COMPARED]
        random = self._few_maps(self.random_model, method, self.priors.whole)
        correlations = rank_correlation(trained, random)[None]
        return Sanity(name, (("all",),), correlations, torch.equal(trained, random), method.needs_prior)

    def _stability(self, method: Method) -> float:
        """Mean rank correlation of maps made twice: priors of two halves of the data, and two seeds of the draws."""
        seeded = any(field.name == "seed" for field in fields(method))
        if not (method.needs_prior or method.needs_references or seeded):
            return math.nan
        other: Any = replace(method, seed=method.seed + 1) if seeded else method  # type: ignore[attr-defined,call-arg]
        first, second = (
            self._few_maps(self.model, one, prior)
            for one, prior in zip((method, other), self.priors.halves, strict=True)
        )
        return float(rank_correlation(first, second).nanmean())

    def _few_maps(self, model: nn.Module, method: Method, prior: Any) -> Tensor:
        with warnings.catch_warnings():
            # The prior comes from other weights on purpose; other warnings were issued for all images.
            warnings.simplefilter("ignore", AGOPWarning)
            return explain(
                model, self.images[:_COMPARED], method, prior, self.targets[:_COMPARED], batch_size=self.rows,
                nan="skip", output=self._output,
            )  # fmt: skip


def judged_with_notes(judge: Judge, name: str, method: Method) -> tuple[Judged, list[str]]:
    """The judged method, and the messages of its warnings."""
    with recorded_warnings() as messages:
        judged = judge.judged(name, method)
    return judged, [f"{name}: {message}" for message in messages]
