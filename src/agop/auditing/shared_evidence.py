"""Classes that share their evidence: pixels to which both are more sensitive than the mean class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agop.statistic.agop import AGOP

# Samples of a class in each half of the data that suffice, and pairs of classes that are reported at most.
_ENOUGH, _MOST_PAIRS = 10, 5
# A lower correlation isn't worth a sentence.
_LEAST = 0.1


@dataclass(frozen=True)
class SharedEvidence:
    """Pairs of classes with the correlation of their evidence, highest first, above `bound`.

    `typical` is the median pair's correlation. The bound is above it by the largest difference between two halves of
    the data, and at least 0.1. Without one: too few classes.
    """

    pairs: tuple[tuple[int, int, float], ...] = ()
    typical: float | None = None
    bound: float | None = None

    def sentences(self, names: Sequence[str]) -> list[str]:
        """A sentence per pair, or one if there are none."""
        if self.bound is None:
            return [
                "Whether classes share their evidence is unknown: this needs three classes with about 40 correctly "
                "classified images each."
            ]
        if not self.pairs:
            return ["No two classes share more of their evidence than others."]
        return [
            f"{names[a]} and {names[b]} share their evidence: where they are more sensitive than the mean class, their "
            f"maps have a correlation of {value:.2f} (typical pair: {self.typical:.2f})."
            for a, b, value in self.pairs
        ]


def shared_evidence(halves: tuple[AGOP, AGOP]) -> SharedEvidence:
    """Pairs of classes whose evidence is more alike than that of the median pair, beyond differences of halves."""
    classes = [index for index, count in enumerate(_counts(halves)) if count >= _ENOUGH]
    if len(classes) < 3:
        return SharedEvidence()
    first, second = (_correlations(_scaled(half, classes)) for half in halves)
    values = (first + second) / 2
    typical = float(values.median())
    bound = max(_LEAST, typical + float((first - second).abs().max()))
    places = torch.combinations(torch.tensor(classes)).tolist()
    pairs = [(a, b, value) for (a, b), value in zip(places, values.tolist(), strict=True) if value > bound]
    return SharedEvidence(tuple(sorted(pairs, key=lambda pair: -pair[2])[:_MOST_PAIRS]), typical, bound)


def _counts(halves: tuple[AGOP, AGOP]) -> list[int]:
    """The smaller number of samples of each class in the two halves."""
    first, second = (half.class_counts for half in halves)
    return [] if first is None or second is None else torch.minimum(first, second).tolist()


def _scaled(half: AGOP, classes: Sequence[int]) -> Tensor:
    """RMS gradient (K,H·W) of each class, scaled so that the median pixel is that of the mean map.

    A norm would lower all other pixels of a class with a bright spot, so that classes without one seem alike.
    """
    diagonals = half.diagonal[None] if half.class_diagonals is None else half.class_diagonals[list(classes)]
    maps = torch.nn.functional.normalize(diagonals.double().sum(dim=1).sqrt().flatten(1))
    mean = maps.mean(dim=0)
    ratios = (maps / mean)[:, mean > 0]
    levels = ratios.median(dim=1, keepdim=True).values if ratios.numel() else torch.ones(len(maps), 1)
    return maps / torch.where(levels > 0, levels, 1)


def _correlations(maps: Tensor) -> Tensor:
    """Correlation of the evidence of each pair of maps (K,P), pairs in the order of torch.combinations.

    The evidence is the positive part of the map minus the mean map: below the mean, classes would agree on what only a
    third one has.
    """
    evidence = (maps - maps.mean(dim=0)).clamp_min(0)
    units = torch.nn.functional.normalize(evidence - evidence.mean(dim=1, keepdim=True))
    first, second = torch.combinations(torch.arange(len(maps))).T
    return (units[first] * units[second]).sum(dim=1)
