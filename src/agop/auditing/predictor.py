"""Predictor: class probabilities of a model. Pairs: images of other classes, each with an image of a class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agop.auditing.pool import Half
from agop.errors import ModelError
from agop.interventions import Intervention
from agop.model.probe import Probe
from agop.model.targets import probabilities

# Probabilities nearer to 0 or 1 count as this one in log-odds, which are then at most 21.
_TINY = 1e-9


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
        """The half with its probabilities. Raise if the model's outputs are NaN."""
        before = predictor.probabilities(half.images)
        if wrong := before.isnan().any(dim=1).nonzero()[:, 0].tolist():
            raise ModelError(
                f"the model's outputs are NaN or infinite for {len(wrong)} of {len(before)} images, such as "
                f"{half.pictures[wrong[0]]}: check its weights and its number format"
            )
        return cls(half, before)

    def members(self, class_index: int) -> Tensor:
        """Positions of the images of a class."""
        return (self.half.labels == class_index).nonzero()[:, 0]

    def others(self, class_index: int) -> Tensor:
        """Positions of the images of other classes."""
        return (self.half.labels != class_index).nonzero()[:, 0]

    def some_others(self, class_index: int, count: int, generator: torch.Generator) -> Tensor:
        """Positions of random images of other classes, at most `count`, none twice."""
        others = self.others(class_index)
        return evenly(others, min(count, len(others)), generator)

    def pairs(self, class_index: int, donors: Tensor, count: int, generator: torch.Generator) -> Pairs:
        """Random images of other classes, each with one of the donors. Both are used evenly."""
        others = self.others(class_index)
        count = min(count, len(others))
        return Pairs(self, class_index, evenly(others, count, generator), evenly(donors, count, generator))

    def hosts(self, class_index: int, count: int, generator: torch.Generator) -> Tensor:
        """Images to paste into, half of them of the class, half of others.

        What merely hides the object lowers the log-odds of the class in its own images and raises them in others.
        """
        own = evenly(self.members(class_index), (count + 1) // 2, generator)
        return torch.cat([own, evenly(self.others(class_index), count // 2, generator)])

    def crossed(self, class_index: int, donors: Tensor, hosts: Tensor) -> Pairs:
        """Every donor with the same hosts, by donor."""
        return Pairs(self, class_index, hosts.repeat(len(donors)), donors.repeat_interleave(len(hosts)))


@dataclass(frozen=True)
class Pairs:
    """Positions of hosts (N,) and donors (N,) in half of the images, for a class."""

    asked: Asked
    class_index: int
    hosts: Tensor
    donors: Tensor

    def with_donors(self, donors: Tensor, generator: torch.Generator) -> Pairs:
        """The same hosts with other donors, used evenly."""
        return replace(self, donors=evenly(donors, len(self.hosts), generator))


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
    """What the intervention changes in each pair. Pixels in `keep` (H,W) stay as they were, and aren't taken."""
    # Changed images of all pairs together may not fit into memory.
    starts = range(0, len(pairs.hosts), predictor.rows)
    parts = [slice(start, start + predictor.rows) for start in starts]
    after = torch.cat([predictor.probabilities(_changed(pairs, intervention, keep, part)) for part in parts])
    before = pairs.asked.before[pairs.donors if intervention.removes else pairs.hosts]
    was, now = (p.argmax(dim=1) == pairs.class_index for p in (before, after))
    old, new = before[:, pairs.class_index], after[:, pairs.class_index]
    return Change(new - old, new.logit(_TINY) - old.logit(_TINY), now & ~was, was & ~now)


def _changed(pairs: Pairs, intervention: Intervention, keep: Tensor | None, part: slice) -> Tensor:
    """The changed images of a part of the pairs."""
    hosts, donors = (pairs.asked.half.images[positions[part]] for positions in (pairs.hosts, pairs.donors))
    if keep is None:
        return intervention.of(part).changed(hosts, donors)
    original = donors if intervention.removes else hosts
    changed = intervention.of(part).changed(hosts, torch.where(keep, hosts, donors))
    return torch.where(keep, original, changed)


def evenly(positions: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the positions in random order, each once before any is repeated."""
    rounds = -(-count // len(positions))
    order = torch.cat([torch.randperm(len(positions), generator=generator) for _ in range(rounds)])
    return positions[order[:count]]
