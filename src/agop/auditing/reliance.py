"""Reliance: where a model looks, at what, and which classes share their evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.finding import class_label
from agop.auditing.intervals import finite
from agop.auditing.pool import ENOUGH_IMAGES, Half
from agop.auditing.positional_consistency import Consistency, positional_consistency
from agop.auditing.priors import Priors
from agop.auditing.shared_evidence import SharedEvidence, shared_evidence
from agop.model.patch_layer import convolution_weight
from agop.statistic.agop import AGOP
from agop.statistic.concentration import Concentration, concentration
from agop.statistic.eigenvectors import Eigenvectors, patch_eigenvectors

_FILTERS = 8


@dataclass(frozen=True, eq=False)
class Reliance:
    """What a model relies on, by its AGOP.

    `maps` (K,H,W) is the RMS gradient of each class, `concentrations` by class index how much of it is in few pixels,
    the most concentrated class first. `filters` are the top eigenvectors of the patches' AGOP at `layer`, None if that
    isn't a convolution of the images.
    """

    class_names: tuple[str, ...]
    consistency: Consistency
    concentrations: dict[int, Concentration]
    shared: SharedEvidence
    maps: Tensor = field(repr=False)
    filters: Eigenvectors | None = field(default=None, repr=False)
    layer: str | None = None

    @classmethod
    def of(
        cls, model: nn.Module, half: Half, priors: Priors, class_names: Sequence[str], rows: int, seed: int
    ) -> Reliance:
        """Reliance of a model, from its priors and the gradients of some images."""
        prior = priors.whole
        diagonals = prior.diagonal[None] if prior.class_diagonals is None else prior.class_diagonals
        maps = diagonals.double().sum(dim=1)
        counts = torch.ones(len(maps)) if prior.class_counts is None else prior.class_counts
        # Few images are concentrated by chance, and a class that was skipped shouldn't be named.
        enough = counts >= (1 if prior.class_counts is None else min(ENOUGH_IMAGES // 2, int(counts.max())))
        hot = {index: concentration(maps[index]) for index in enough.nonzero()[:, 0].tolist()}
        return cls(
            tuple(class_names),
            positional_consistency(model, half, rows, seed),
            dict(sorted(hot.items(), key=lambda item: -_share(item[1]))),
            shared_evidence(priors.halves),
            maps.sqrt(),
            _filters(model, prior),
            prior.layer,
        )

    def concentration_sentence(self, index: int) -> str:
        """Where a class's gradients are concentrated."""
        return f"{class_label(self.class_names[index])}: {self.concentrations[index]}"

    def sentences(self) -> list[str]:
        """Places or patterns, the most concentrated class, and classes that share their evidence."""
        first = next(iter(self.concentrations))
        most = f"Most concentrated is {self.concentration_sentence(first)}."
        return [self.consistency.sentence, most, *self.shared.sentences(self.class_names)]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values, without maps and filters."""
        return {
            "positional_consistency": self.consistency.to_dict(),
            "concentration": [
                {
                    "class_index": index,
                    "share": finite(hot.share),
                    "pixels": hot.pixels,
                    "place": hot.place,
                    "sentence": self.concentration_sentence(index),
                }
                for index, hot in self.concentrations.items()
            ],
            "shared_evidence": {
                "typical": self.shared.typical,
                "bound": self.shared.bound,
                "pairs": [{"classes": [a, b], "correlation": value} for a, b, value in self.shared.pairs],
            },
            "filters": None if self.filters is None else self.filters.shares.tolist(),
            "layer": self.layer,
        }


def _share(hot: Concentration) -> float:
    return -1.0 if math.isnan(hot.share) else hot.share


def _filters(model: nn.Module, prior: AGOP) -> Eigenvectors | None:
    """Top patterns in patches that the model relies on; None unless the layer is a convolution of the images."""
    layer = dict(model.named_modules()).get(prior.layer or "")
    if prior.patch_matrix is None or not isinstance(layer, nn.Conv2d):
        return None
    if layer.in_channels != len(prior.diagonal) or layer.out_channels != len(prior.patch_matrix):
        return None
    return patch_eigenvectors(prior.patch_matrix.numpy(), convolution_weight(layer).numpy(), _FILTERS)
