"""AGOP-Global: diag(M) itself, the same for every image, without a pass through the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method


@dataclass(frozen=True)
class AGOPGlobal(Method):
    """The prior itself, Σ_channels diag(M), for every image.

    All N maps share the memory of one map, so writing to them raises.
    """

    name: ClassVar[str] = "agop-global"
    needs_prior: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return job.prior.map.to(torch.float32).expand(len(job.images), -1, -1)
