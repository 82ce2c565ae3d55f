"""The prior of an audit, with those of two halves of its images as a null distribution."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agop.auditing.pool import Half
from agop.errors import AGOPWarning, PriorError, warn
from agop.statistic.agop import AGOP
from agop.statistic.fitting import fit
from agop.statistic.merging import merge


@dataclass(frozen=True)
class Priors:
    """The prior, and those of two halves of the images that propose."""

    whole: AGOP
    halves: tuple[AGOP, AGOP]

    @classmethod
    def of(cls, model: nn.Module, half: Half, prior: AGOP | None, rows: int, *, progress: bool) -> Priors:
        """The prior, computed from the images if there is none per class."""
        if prior is not None and not isinstance(prior, AGOP):
            raise PriorError(f"prior is a {type(prior).__name__}: give an agop.AGOP, for example agop.AGOP.load(path)")
        if prior is not None:
            prior.check(model, half.images)
            if prior.class_diagonals is None:
                warn("the prior has no diagonals per class: one is computed, as with agop.fit(per_class=True)")
                prior = None
        order = torch.arange(len(half.labels))
        first, second = (
            fit(
                model, _Batches(half.images[order % 2 == odd], half.labels[order % 2 == odd], rows), per_class=True,
                progress=progress, patches=prior is None, batch_size=rows,
            )
            for odd in (0, 1)
        )  # fmt: skip
        if prior is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AGOPWarning)  # the halves share no images
                prior = merge([first, second])
        return cls(prior, (first, second))


@dataclass(frozen=True)
class _Batches:
    """Batches (images, labels)."""

    images: Tensor
    labels: Tensor
    rows: int

    def __len__(self) -> int:
        return (len(self.images) + self.rows - 1) // self.rows

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(self.images, self.rows), torch.split(self.labels, self.rows), strict=True)
