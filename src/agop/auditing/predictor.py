"""Predictor: class probabilities of a model. Pairs: images of other classes, each with an image of a class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agop.auditing.pool import Half
from agop.interventions import Intervention
from agop.model.probe import Probe
from agop.model.targets import probabilities

# Probabilities nearer to 0 or 1 count as this one in log-odds, which are then at most 9.2.
_TINY = 1e-4


@dataclass(frozen=True)
class Predictor:
    """Class probabilities of images, at most `rows` at once."""

    probe: Probe
    rows: int

    def probabilities(self, images: Tensor) -> Tensor:
        """Class probabilities (N,K) in float64 on the CPU."""
        parts = [self.probe.logits(part).double().cpu() for part in torch.split(images, self.rows)]
        return probabilities(torch.cat(parts))


@dataclass(frozen=True)
class Asked:
    """Half of the images with the model's probabilities (N,K) for them."""

    half: Half
    before: Tensor

    @classmethod
    def of(cls, predictor: Predictor, half: Half) -> Asked:
        """The half with its probabilities."""
        return cls(half, predictor.probabilities(half.images))

    def members(self, class_index: int) -> Tensor:
        """Positions of the images of a class."""
        return (self.half.labels == class_index).nonzero()[:, 0]

    def pairs(self, class_index: int, count: int, generator: torch.Generator) -> Pairs:
        """Random images of other classes, each with an image of the class. Both are used evenly."""
        others = (self.half.labels != class_index).nonzero()[:, 0]
        count = min(count, len(others))
        hosts = others[torch.randperm(len(others), generator=generator)[:count]]
        return Pairs(self, class_index, hosts, _evenly(self.members(class_index), count, generator))

    def other_donors(self, class_index: int, count: int, generator: torch.Generator) -> Tensor:
        """Positions of random images of other classes."""
        return _evenly((self.half.labels != class_index).nonzero()[:, 0], count, generator)


@dataclass(frozen=True)
class Pairs:
    """Positions of hosts (N,) in half of the images, and of donors (N,) in the same or another half, for a class."""

    asked: Asked
    class_index: int
    hosts: Tensor
    donors: Tensor
    donor_images: Tensor | None = None

    def with_donors(self, donors: Tensor, images: Tensor | None = None) -> Pairs:
        """The same hosts with other donors, from other images (M,C,H,W) if there are any."""
        return Pairs(self.asked, self.class_index, self.hosts, donors, images)

    def __getitem__(self, part: slice) -> Pairs:
        return Pairs(self.asked, self.class_index, self.hosts[part], self.donors[part], self.donor_images)


@dataclass(frozen=True)
class Change:
    """Change (N,) of the probability of the class and of its log-odds.

    `turned` (N,) and `lost` (N,) are the images that are now predicted as the class, or no longer.
    """

    probability: Tensor
    log_odds: Tensor
    turned: Tensor
    lost: Tensor

    @property
    def mean(self) -> float:
        """Mean change of the probability."""
        return float(self.probability.mean())

    @property
    def turned_share(self) -> float:
        """Share of images that weren't predicted as the class and now are."""
        return float(self.turned.double().mean())


def change(predictor: Predictor, pairs: Pairs, intervention: Intervention, keep: Tensor | None = None) -> Change:
    """What the intervention changes in each pair. Pixels in `keep` (H,W) stay as they were."""
    images = pairs.asked.half.images
    sources = images if pairs.donor_images is None else pairs.donor_images
    changed_positions = pairs.donors if intervention.removes else pairs.hosts
    changed = intervention.changed(images[pairs.hosts], sources[pairs.donors])
    if keep is not None:
        changed = torch.where(keep, images[changed_positions], changed)
    before, after = pairs.asked.before[changed_positions], predictor.probabilities(changed)
    was, now = (p.argmax(dim=1) == pairs.class_index for p in (before, after))
    old, new = before[:, pairs.class_index], after[:, pairs.class_index]
    return Change(new - old, new.logit(_TINY) - old.logit(_TINY), now & ~was, was & ~now)


def _evenly(positions: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the positions in random order, each once before any is repeated."""
    rounds = -(-count // len(positions))
    order = torch.cat([torch.randperm(len(positions), generator=generator) for _ in range(rounds)])
    return positions[order[:count]]
