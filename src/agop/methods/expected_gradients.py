"""Expected Gradients: Integrated Gradients averaged over reference images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job
from agop.methods.channels import sum_channels
from agop.methods.reference_method import ReferenceMethod


@dataclass(frozen=True)
class ExpectedGradients(ReferenceMethod):
    """Gradients on paths from reference images, times the difference: Σ_channels |mean (x − b) · ∂f/∂x|.

    The gradient is that at b + α (x − b). Each sample draws a reference image b and α in 0..1.
    """

    name: ClassVar[str] = "expected-gradients"

    def maps(self, job: Job) -> Tensor:
        return sum_channels(self.attribution(job))

    def attribution(self, job: Job) -> Tensor:
        """Signed attribution (N,C,H,W). Its sum converges to f(x) − mean of f(b)."""
        return self.mean_term(job)
