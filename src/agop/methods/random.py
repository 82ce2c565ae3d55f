"""Random: uniform noise, the score of a map without information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method


@dataclass(frozen=True)
class Random(Method):
    """Uniform noise, a baseline."""

    name: ClassVar[str] = "random"
    needs_model: ClassVar[bool] = False
    seed: int = 0

    def maps(self, job: Job) -> Tensor:
        samples, _, height, width = job.images.shape
        generator = torch.Generator("cpu").manual_seed(self.seed)
        return torch.rand(samples, height, width, generator=generator, device="cpu")
