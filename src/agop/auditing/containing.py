"""Containing: images of a class with a score of how much each contains what a finding is about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.predictor import Asked
from agop.auditing.trial import Screening


@dataclass(frozen=True, eq=False)
class Containing:
    """Images (M,C,H,W) of a class, which of them contain a pattern, and a score (M,) in 0..1, largest first.

    The score of images that contain it is at least 0.5, that of others at most 0.5. In each half, it grows with the
    model's response. `recognised` (M,) are those that the model classifies correctly.
    """

    ranked: Tensor
    scores: Tensor
    contains: Tensor
    recognised: Tensor
    pictures: tuple[str, ...]

    @classmethod
    def of(cls, asked: Asked, screening: Screening) -> Containing:
        """From the groups and responses of a screening: the images of the class."""
        low = screening.responses[~screening.contains].mean()
        own = slice(screening.of_class)
        members, responses, contains = screening.members[own], screening.responses[own], screening.contains[own]
        places = ((responses - low) / max(screening.gap, 1e-12)).clamp(0, 1)
        pictures = tuple(asked.half.pictures[member] for member in members.tolist())
        recognised = asked.before[members].argmax(dim=1) == screening.proposal.class_index
        return cls(asked.half.images[members], (places + contains) / 2, contains, recognised, pictures)._sorted()

    def _sorted(self) -> Containing:
        """The same images, sorted by score."""
        order = self.scores.argsort(descending=True, stable=True)
        pictures = tuple(self.pictures[place] for place in order.tolist())
        return Containing(
            self.ranked[order], self.scores[order], self.contains[order], self.recognised[order], pictures
        )  # fmt: skip

    def joined(self, other: Containing) -> Containing:
        """The images of both."""
        ranked, scores, contains, recognised = (
            torch.cat([getattr(part, name) for part in (self, other)])
            for name in ("ranked", "scores", "contains", "recognised")
        )
        return Containing(ranked, scores, contains, recognised, (*self.pictures, *other.pictures))._sorted()

    @property
    def share(self) -> float:
        """Share of the images that contain it."""
        return float(self.contains.double().mean())

    @property
    def recognised_shares(self) -> tuple[float, float]:
        """Share of correctly classified images among those that contain it, and among the others (NaN if none)."""
        having, lacking = (self.recognised[part].double().mean() for part in (self.contains, ~self.contains))
        return float(having), float(lacking)
