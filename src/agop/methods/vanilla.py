"""VanillaGrad: the absolute gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class Vanilla(Method):
    """The absolute gradient: Σ_channels |∂f/∂x|."""

    name: ClassVar[str] = "vanilla"

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients())
