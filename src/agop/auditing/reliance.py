"""Reliance: where a model looks, at what, and which classes share their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.data import class_label, diagonals_of
from agop.auditing.thresholds import IMAGES_OF_A_CLASS
from agop.evaluation.select import Priors
from agop.model.layers import convolution_weight
from agop.prior.agop import AGOP
from agop.prior.matrices import Eigenvectors, patch_eigenvectors
from agop.prior.show import Concentration, concentration
from agop.stats import finite

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
    counts = [half.class_counts for half in halves if half.class_counts is not None]
    classes = (torch.stack(counts).amin(dim=0) >= _ENOUGH).nonzero()[:, 0].tolist() if counts else []
    if len(classes) < 3:
        return SharedEvidence()
    first, second = (_correlations(_scaled(half, classes)) for half in halves)
    values = (first + second) / 2
    typical = float(values.median())
    bound = max(_LEAST, typical + float((first - second).abs().max()))
    places = torch.combinations(torch.tensor(classes)).tolist()
    pairs = [(a, b, value) for (a, b), value in zip(places, values.tolist(), strict=True) if value > bound]
    return SharedEvidence(tuple(sorted(pairs, key=lambda pair: -pair[2])[:_MOST_PAIRS]), typical, bound)


def _scaled(half: AGOP, classes: Sequence[int]) -> Tensor:
    """RMS gradient (K,H·W) of each class, scaled so that the median pixel is that of the mean map.

    A norm would lower all other pixels of a class with a bright spot, so that classes without one seem alike.
    """
    maps = torch.nn.functional.normalize(diagonals_of(half)[list(classes)].double().sum(dim=1).sqrt().flatten(1))
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


_FILTERS = 8


@dataclass(frozen=True, eq=False)
class Reliance:
    """What a model relies on, by its AGOP.

    `maps` (K,H,W) is the RMS gradient of each class, `concentrations` by class index how much of it is in few pixels,
    the most concentrated class first. `filters` are the top eigenvectors of the patches' AGOP at `layer`, None if that
    isn't a convolution of the images.
    """

    class_names: tuple[str, ...]
    concentrations: dict[int, Concentration]
    shared: SharedEvidence
    maps: Tensor = field(repr=False)
    filters: Eigenvectors | None = field(default=None, repr=False)
    layer: str | None = None

    @classmethod
    def of(cls, model: nn.Module, priors: Priors, class_names: Sequence[str]) -> Reliance:
        """Reliance of a model, from its priors."""
        prior = priors.whole
        maps = diagonals_of(prior).double().sum(dim=1)
        counts = torch.ones(len(maps)) if prior.class_counts is None else prior.class_counts
        # Few images are concentrated by chance, and a class that was skipped shouldn't be named.
        enough = min(IMAGES_OF_A_CLASS // 2, int(counts.max()))
        hot = {index: concentration(maps[index]) for index in (counts >= enough).nonzero()[:, 0].tolist()}
        return cls(
            tuple(class_names),
            dict(sorted(hot.items(), key=lambda item: -item[1].share if item[1].share >= 0 else 1)),
            shared_evidence(priors.halves),
            maps.sqrt(),
            _filters(model, prior),
            prior.layer,
        )

    @property
    def concentration_sentences(self) -> list[str]:
        """Where each class's gradients are concentrated."""
        return [f"{class_label(self.class_names[index])}: {hot}" for index, hot in self.concentrations.items()]

    def sentences(self) -> list[str]:
        """The most concentrated class, and classes that share their evidence."""
        most = f"Most concentrated is {self.concentration_sentences[0]}."
        return [most, *self.shared.sentences(self.class_names)]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values, without maps and filters."""
        pairs = [{"classes": [a, b], "correlation": value} for a, b, value in self.shared.pairs]
        return {
            "concentration": [
                {
                    "class_index": index,
                    "share": finite(hot.share),
                    "pixels": hot.pixels,
                    "place": hot.place,
                    "sentence": text,
                }
                for (index, hot), text in zip(self.concentrations.items(), self.concentration_sentences, strict=True)
            ],
            "shared_evidence": {"typical": self.shared.typical, "bound": self.shared.bound, "pairs": pairs},
            "filters": None if self.filters is None else self.filters.shares.tolist(),
            "layer": self.layer,
        }


def _filters(model: nn.Module, prior: AGOP) -> Eigenvectors | None:
    """Top patterns in patches that the model relies on; None unless the layer is a convolution of the images."""
    layer = dict(model.named_modules()).get(prior.layer or "")
    if prior.patch_matrix is None or not isinstance(layer, nn.Conv2d):
        return None
    if layer.in_channels != len(prior.diagonal) or layer.out_channels != len(prior.patch_matrix):
        return None
    return patch_eigenvectors(prior.patch_matrix.numpy(), convolution_weight(layer).numpy(), _FILTERS)
