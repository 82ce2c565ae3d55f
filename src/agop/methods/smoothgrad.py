"""SmoothGrad: the gradient averaged over noisy copies of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method, check_positive, mean_gradients
from agop.methods.channels import sum_channels


@dataclass(frozen=True)
class SmoothGrad(Method):
    """The gradient averaged over noisy copies of the image.

    Σ_channels |mean over k of ∂f/∂x at x + ε_k|, ε_k normal with standard deviation sigma. The noise depends on the
    seed only and is the same for every image, so a map doesn't depend on the other images of the batch.
    """

    name: ClassVar[str] = "smoothgrad"
    samples: int = 50
    sigma: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "samples", self.samples)

    def maps(self, job: Job) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(self.seed)
        shape = job.images.shape[1:]

        def noisy(_: int, images: Tensor) -> Tensor:
            return images + self.sigma * torch.randn(shape, generator=generator, device="cpu").to(images)

        return sum_channels(mean_gradients(job, self.samples, noisy))
