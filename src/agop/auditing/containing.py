"""Containing: images of a class with a score of how much each contains what a finding is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.pool import Half
from agop.auditing.trial import Screening


@dataclass(frozen=True, eq=False)
class Containing:
    """Images (M,C,H,W) of a class, which of them contain a pattern, and a score (M,) in 0..1, largest first.

    The score of images that contain it is at least 0.5, that of others at most 0.5. In each half, it grows with the
    model's response.
    """

    ranked: Tensor
    scores: Tensor
    contains: Tensor
    pictures: tuple[str, ...]

    @classmethod
    def of(cls, half: Half, screening: Screening) -> Containing:
        """From the groups and responses of a screening: the images of the class."""
        low = screening.responses[~screening.contains].mean()
        own = slice(screening.of_class)
        members, responses, contains = screening.members[own], screening.responses[own], screening.contains[own]
        places = ((responses - low) / max(screening.gap, 1e-12)).clamp(0, 1)
        pictures = [half.pictures[member] for member in members.tolist()]
        return cls.sorted(half.images[members], (places + contains) / 2, contains, pictures)

    @classmethod
    def sorted(cls, images: Tensor, scores: Tensor, contains: Tensor, pictures: Sequence[str]) -> Containing:
        """Sort the images by score."""
        order = scores.argsort(descending=True, stable=True)
        return cls(images[order], scores[order], contains[order], tuple(pictures[place] for place in order.tolist()))

    def joined(self, other: Containing) -> Containing:
        """The images of both."""
        images, scores, contains = (
            torch.cat([getattr(part, name) for part in (self, other)]) for name in ("ranked", "scores", "contains")
        )
        return Containing.sorted(images, scores, contains, (*self.pictures, *other.pictures))
