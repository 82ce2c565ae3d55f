"""AGOP-Expected: the absolute terms of Expected Gradients, weighted by the prior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job
from agop.methods.channels import sum_channels
from agop.methods.reference_method import ReferenceMethod


@dataclass(frozen=True)
class AGOPExpected(ReferenceMethod):
    """Expected Gradients' absolute terms times the prior: Σ_channels mean |(x − b) · ∂f/∂x| · sqrt(diag(M) / max).

    The mean of absolute values keeps a pixel that speaks for the class beside one reference and against it beside
    another. diag(M) is half that of the target's class, if the prior has enough samples of it.
    """

    name: ClassVar[str] = "agop-expected"
    needs_prior: ClassVar[bool] = True

    def maps(self, job: Job) -> Tensor:
        classes = job.classes
        return sum_channels(self.mean_term(replace(job, targets=classes), torch.abs), job.prior.weights_for(classes))
