"""Sobel: the edges of the image, a control that doesn't use the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import edges


@dataclass(frozen=True)
class Sobel(Method):
    """Edge strength: Σ_channels of the Sobel filter's gradient norm. A control."""

    name: ClassVar[str] = "sobel"
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return edges(job.images)
