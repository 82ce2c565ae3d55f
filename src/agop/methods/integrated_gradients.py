"""Integrated Gradients: the gradient averaged along the way from a baseline to the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.base import Job, Method, check_positive, mean_gradients
from agop.saliency import reduced


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """The gradient averaged from a baseline to the image, times their difference.

    (x − x') · mean over k = 1 .. steps of ∂f/∂x at x' + k/steps · (x − x'): a right Riemann sum. The
    baseline x' is one number for all pixels.
    """

    name: ClassVar[str] = "integrated-gradients"
    steps: int = 50
    baseline: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "steps", self.steps)

    def maps(self, job: Job) -> Tensor:
        return reduced(self.attribution(job))

    def attribution(self, job: Job) -> Tensor:
        """The signed attribution (N,C,H,W); its sum tends to f(x) − f(x')."""
        images = job.probe.placed(job.images)
        baseline = torch.full_like(images[:1], self.baseline)

        def on_the_way(k: int, images: Tensor) -> Tensor:
            return torch.lerp(baseline, images, (k + 1) / self.steps)

        return (images - baseline) * mean_gradients(job, self.steps, on_the_way)
