"""Integrated Gradients: the gradient averaged along the path from a baseline to the image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.errors import InputError
from agop.methods.base import Job, Method, check_positive, mean_gradients
from agop.methods.channels import sum_channels

Baseline = float | Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """The gradient averaged from a baseline to the image, times their difference.

    (x − x') · mean over k = 1 .. steps of ∂f/∂x at x' + k/steps · (x − x'): a right Riemann sum. The baseline x' is one
    number for all pixels, an image (C,H,W), a function from images (N,C,H,W) to their baselines, or several images
    (B,C,H,W). With several, the attribution is their average, and they share the steps.
    """

    name: ClassVar[str] = "integrated-gradients"
    steps: int = 50
    baseline: Baseline = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "steps", self.steps)

    def maps(self, job: Job) -> Tensor:
        return sum_channels(self.attribution(job))

    def attribution(self, job: Job) -> Tensor:
        """Signed attribution (N,C,H,W). Its sum converges to f(x) − f(x')."""
        images = job.probe.placed(job.images)
        baselines = self._baselines(images)
        steps = -(-self.steps // len(baselines))
        return torch.stack([_attribution(job, images, baseline, steps) for baseline in baselines]).mean(dim=0)

    def _baselines(self, images: Tensor) -> Sequence[Tensor]:
        """The baselines, each with the shape of one image or of all images."""
        if isinstance(self.baseline, Tensor) and self.baseline.numel():
            baseline = self.baseline.to(images)
            baselines = list(baseline) if baseline.ndim == images.ndim else [baseline]
        elif callable(self.baseline):
            baselines = [self.baseline(images)]
        elif isinstance(self.baseline, (int, float)):
            baselines = [torch.full_like(images[0], self.baseline)]
        else:
            raise InputError(f"{self.name}: baseline is {self.baseline!r}: give a number, (C,H,W) or (B,C,H,W)")
        for baseline in baselines:
            if baseline.shape not in (images.shape, images.shape[1:]):
                raise InputError(
                    f"{self.name}: baseline has shape {tuple(baseline.shape)}, images {tuple(images.shape)}: "
                    "give a number, (C,H,W) or (B,C,H,W)"
                )
        return baselines


def _attribution(job: Job, images: Tensor, baseline: Tensor, steps: int) -> Tensor:
    baseline = baseline.expand_as(images)

    def path_point(k: int, images: Tensor) -> Tensor:
        return torch.lerp(baseline, images, (k + 1) / steps)

    return (images - baseline) * mean_gradients(job, steps, path_point)
