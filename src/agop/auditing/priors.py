"""The prior of an audit, with those of two halves of its images as a null distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from agop.auditing.pool import Half
from agop.auditing.stages import Stages
from agop.errors import PriorError, warn
from agop.model.targets import PREDICTED
from agop.statistic.agop import AGOP
from agop.statistic.agop_file import add_bytes
from agop.statistic.fitting import fit
from agop.statistic.merging import merge
from agop.statistic.provenance import ImagesDigest


@dataclass(frozen=True)
class Priors:
    """The prior, and those of two halves of the images that propose."""

    whole: AGOP
    halves: tuple[AGOP, AGOP]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        half: Half,
        prior: AGOP | None,
        rows: int,
        *,
        progress: bool,
        per_class: bool = True,
        stages: Stages | None = None,
    ) -> Priors:
        """The prior, computed from the images if there is none, or none per class."""
        check_prior(prior, model, half.images)
        if per_class and prior is not None and prior.class_diagonals is None:
            warn("the prior has no diagonals per class: one is computed, as with agop.fit(per_class=True)")
            prior = None
        order = torch.arange(len(half.labels))
        options: dict[str, Any] = {
            "patches": prior is None or prior.patch_matrix is not None,
            "output": PREDICTED if prior is None else prior.provenance.output,
            "per_class": per_class,
            "progress": progress,
        }
        first, second = (
            (stages or Stages()).prior(
                f"prior-{odd}", partial(fit, model, _Batches(part, rows), batch_size=rows, **options)
            )
            for odd, part in enumerate(half.where(order % 2 == odd) for odd in (0, 1))
        )
        if prior is None:
            prior = merge([_named(first, half, 0), _named(second, half, 1)])
        return cls(prior, (first, second))


def check_type(prior: AGOP | None) -> None:
    """Raise unless the prior is an AGOP or None."""
    if prior is not None and not isinstance(prior, AGOP):
        raise PriorError(f"prior is a {type(prior).__name__}: give an agop.AGOP, for example agop.AGOP.load(path)")


def check_prior(prior: AGOP | None, model: nn.Module, images: Tensor) -> None:
    """Raise unless the prior is an AGOP for images of this shape, or None. Warn if it comes from another model."""
    check_type(prior)
    if prior is not None:
        prior.check(model, images)


def _named(prior: AGOP, half: Half, odd: int) -> AGOP:
    """The prior with its images on record, so that `merge` knows that those at even and at odd places differ.

    Equal numbers don't mean equal images: the gradients of a linear model are constant.
    """
    digest = hashlib.sha256(bytes([odd]))
    add_bytes(digest, half.images)
    name = digest.hexdigest()[:16]
    data = replace(prior.provenance.data, pictures=ImagesDigest(prior.count, name, (name,)))
    return replace(prior, provenance=replace(prior.provenance, data=data))


@dataclass(frozen=True)
class _Batches:
    """Batches (images, labels)."""

    half: Half
    rows: int

    def __len__(self) -> int:
        return (len(self.half.images) + self.rows - 1) // self.rows

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(*(torch.split(tensor, self.rows) for tensor in (self.half.images, self.half.labels)), strict=True)
