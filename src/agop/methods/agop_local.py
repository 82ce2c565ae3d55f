"""AGOP-Local: the AGOP of a single sample, as |g| instead of g²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class AGOPLocal(Method):
    """The absolute gradient. By the paper's definition, the same as vanilla."""

    name: ClassVar[str] = "agop-local"

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.gradients())
