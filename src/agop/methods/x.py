"""x: the image itself, a control that doesn't use the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class X(Method):
    """The absolute image: Σ_channels |x|. A control."""

    name: ClassVar[str] = "x"
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.images)
