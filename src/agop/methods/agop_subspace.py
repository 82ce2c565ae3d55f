"""AGOP-Subspace: the gradient, projected by the whole matrix M instead of its diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels
from agop.model.probe import at_least_float32


@dataclass(frozen=True)
class AGOPSubspace(Method):
    """The gradient multiplied by the approximation of M from the prior's sketch: Σ_channels |M̂ ∂f/∂x|.

    M̂ = BᵀB/n + diag(r), with the sketch B and r = diag(M) − diag(BᵀB)/n, so that M̂ has the diagonal of M.
    """

    name: ClassVar[str] = "agop-subspace"
    needs_prior: ClassVar[bool] = True
    prior_parts: ClassVar[tuple[str, ...]] = ("sketch",)

    def maps(self, job: Job) -> Tensor:
        gradients = job.gradients()
        gradients = gradients.to(at_least_float32(gradients.dtype))
        # Scaled by max diag(M): products of small gradients would underflow in float32.
        scale = job.prior.diagonal.max()
        residual = (job.prior.residual / scale).to(gradients)
        rows = (job.prior.sketch_rows / (scale * job.prior.count).sqrt()).to(gradients).flatten(1)
        projected = (gradients.flatten(1) @ rows.T) @ rows
        return sum_channels(projected.reshape(gradients.shape) + residual * gradients)
