"""AGOP-Weighted: the gradient, weighted by the model's sensitivity over the training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class AGOPWeighted(Method):
    """The gradient times the prior: Σ_channels |∂f/∂x| · sqrt(diag(M) / max diag(M)).

    With `by_class`, diag(M) is half that of the target's class, if the prior has enough samples of it.
    """

    name: ClassVar[str] = "agop-weighted"
    needs_prior: ClassVar[bool] = True
    by_class: bool = False

    def maps(self, job: Job) -> Tensor:
        gradients = job.probe.gradients(job.images, job.targets)
        weights = job.prior.weights_for(gradients.targets) if self.by_class else job.prior.weights
        return sum_channels(gradients.values, weights)
