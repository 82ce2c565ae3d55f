"""Prevalence: the share of a class's images that contain what a finding is about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from agop.auditing.moving_patches import ALIKE, best_matches, cut, reduction
from agop.auditing.predictor import Asked, Pairs, Predictor, change
from agop.auditing.proposals import PatchProposal, Proposal

# Hosts into which each image's pattern is pasted.
_HOSTS = 6


@dataclass(frozen=True)
class Containing:
    """Share of the class's images that contain the pattern, and all of them, those that contain it most first."""

    share: float
    ranked: Tensor

    @property
    def images(self) -> Tensor:
        """The images (M,C,H,W) that contain it."""
        return self.ranked[: round(self.share * len(self.ranked))]


def containing(predictor: Predictor, asked: Asked, proposal: Proposal, generator: torch.Generator) -> Containing:
    """Which images of the class contain the pattern.

    For a patch that moves: those in which a place looks like it. Otherwise, those whose transplant changes P(class) by
    at least half as much as the mean of the best quarter.
    """
    members = asked.members(proposal.class_index)
    images = asked.half.images[members]
    if isinstance(proposal, PatchProposal):
        scores = _similarity(proposal, images)
        contains = scores >= ALIKE
    else:
        scores = _effects(predictor, asked, proposal, members, generator)
        contains = scores >= scores.sort(descending=True).values[: max(1, len(scores) // 4)].mean() / 2
    return Containing(float(contains.double().mean()), images[scores.argsort(descending=True)])


def _effects(
    predictor: Predictor, asked: Asked, proposal: Proposal, members: Tensor, generator: torch.Generator
) -> Tensor:
    """Mean change (M,) of P(class) over a few hosts, for each image of the class."""
    hosts = asked.other_donors(proposal.class_index, _HOSTS * len(members), generator)
    pairs = Pairs(asked, proposal.class_index, hosts, members.repeat_interleave(_HOSTS))
    return change(predictor, pairs, proposal.intervention(pairs)).probability.reshape(-1, _HOSTS).mean(dim=1)


def _similarity(proposal: PatchProposal, images: Tensor) -> Tensor:
    """The largest correlation (M,) of the patch with a place of each image."""
    factor = reduction((images.shape[2], images.shape[3]))
    small = avg_pool2d(proposal.images[:1], factor)
    patch = cut(small, proposal.corners[:1] // factor, proposal.side // factor)
    return best_matches(avg_pool2d(images, factor), patch).correlation[0]
