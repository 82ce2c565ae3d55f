"""AGOP-Weighted: the gradient, weighted by the model's sensitivity over the training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class AGOPWeighted(Method):
    """The gradient times the prior: Σ_channels |∂f/∂x| · sqrt(diag(M) / max diag(M))."""

    name: ClassVar[str] = "agop-weighted"
    needs_prior: ClassVar[bool] = True

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients(), job.prior.weights)
