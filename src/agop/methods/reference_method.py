"""ReferenceMethod: the base class of Expected Gradients and its variants, paths that start at reference images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method, check_positive, mean_gradients


@dataclass(frozen=True)
class ReferenceMethod(Method):
    """Terms (x − b_k) · ∂f/∂x at b_k + α_k (x − b_k), with b_k drawn from the references and α_k from 0..1.

    The draws depend on the seed and the references only and are the same for every image, so a map doesn't depend on
    the other images of the batch.
    """

    needs_references: ClassVar[bool] = True
    samples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "samples", self.samples)

    def mean_term(self, job: Job, of: Callable[[Tensor], Tensor] = lambda term: term) -> Tensor:
        """Mean (N,C,H,W) over the draws of a function of the terms."""
        generator = torch.Generator("cpu").manual_seed(self.seed)
        drawn = torch.randint(len(job.references), (self.samples,), generator=generator, device="cpu")
        shares = torch.rand(self.samples, generator=generator, device="cpu").tolist()
        starts = job.probe.placed(job.references[drawn.to(job.references.device)])

        def path_point(k: int, images: Tensor) -> Tensor:
            return torch.lerp(starts[k].expand_as(images), images, shares[k])

        def term(k: int, images: Tensor, gradients: Tensor) -> Tensor:
            return of((images - starts[k]) * gradients)

        return mean_gradients(job, self.samples, path_point, term)
