"""Laplace: the second derivative of the image, a control that doesn't use the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import filtered, sum_channels

_KERNEL = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])


@dataclass(frozen=True)
class Laplace(Method):
    """Second derivative: Σ_channels |Laplace filter|. A control."""

    name: ClassVar[str] = "laplace"
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return sum_channels(filtered(job.images, _KERNEL))
