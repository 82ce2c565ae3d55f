"""Gradient methods: VanillaGrad, SmoothGrad, Integrated Gradients, Expected Gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.errors import InputError
from agop.methods.base import Job, Method, SignedMethod, check_positive, mean_gradients


@dataclass(frozen=True)
class Vanilla(SignedMethod):
    """The absolute gradient: Σ_channels |∂f/∂x|.

    Simonyan et al., "Deep Inside Convolutional Networks", 2014.

    Example:
        maps = agop.explain(model, images, "vanilla")
    """

    name: ClassVar[str] = "vanilla"

    def attribution(self, job: Job) -> Tensor:
        return job.gradients()


@dataclass(frozen=True)
class InputXGradient(SignedMethod):
    """The image times the gradient: Σ_channels |x · ∂f/∂x|.

    Shrikumar et al., "Not Just a Black Box: Learning Important Features Through Propagating Activation Differences",
    2016.

    Example:
        maps = agop.explain(model, images, "input-x-gradient", signed=True)
    """

    name: ClassVar[str] = "input-x-gradient"

    def attribution(self, job: Job) -> Tensor:
        return job.probe.placed(job.images) * job.gradients()


@dataclass(frozen=True)
class SmoothGrad(SignedMethod):
    """The gradient averaged over noisy copies of the image.

    Σ_channels |mean over k of ∂f/∂x at x + ε_k|, ε_k normal. The noise depends on the seed only and is the same for
    every image, so a map doesn't depend on the other images of the batch.
    Smilkov et al., "SmoothGrad: removing noise by adding noise", 2017.

    Args:
        samples: Number of noisy copies.
        sigma: Standard deviation of the noise.
        seed: Seed of the noise.

    Raises:
        InputError: If `samples` isn't positive.

    Example:
        maps = agop.explain(model, images, "smoothgrad:samples=20,sigma=0.1")
    """

    name: ClassVar[str] = "smoothgrad"
    samples: int = 50
    sigma: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "samples", self.samples)

    def attribution(self, job: Job) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(self.seed)
        shape = job.images.shape[1:]

        def noisy(_: int, images: Tensor) -> Tensor:
            return images + self.sigma * torch.randn(shape, generator=generator, device="cpu").to(images)

        return mean_gradients(job, self.samples, noisy)


Baseline = float | Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class IntegratedGradients(SignedMethod):
    """The gradient averaged from a baseline to the image, times their difference.

    (x − x') · mean over k = 1 .. steps of ∂f/∂x at x' + k/steps · (x − x'): a right Riemann sum.
    Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017.

    Args:
        steps: Number of gradients.
        baseline: x': one number for all pixels, an image (C,H,W), a function from images (N,C,H,W) to their baselines,
            or several images (B,C,H,W). With several, the attribution is their average, and they share the steps.

    Raises:
        InputError: If `steps` isn't positive; in `explain`, if the baseline has another shape.

    Example:
        method = agop.methods.IntegratedGradients(baseline=training_images.mean(dim=0))
        maps = agop.explain(model, images, method)
    """

    name: ClassVar[str] = "integrated-gradients"
    steps: int = 50
    baseline: Baseline = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "steps", self.steps)

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


@dataclass(frozen=True)
class ReferenceMethod(Method):
    """Terms (x − b_k) · ∂f/∂x at b_k + α_k (x − b_k), with b_k drawn from the references and α_k from 0..1.

    The draws depend on the seed and the references only and are the same for every image, so a map doesn't depend on
    the other images of the batch.
    """

    needs_references: ClassVar[bool] = True
    samples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "samples", self.samples)

    def mean_term(self, job: Job, of: Callable[[Tensor], Tensor] = lambda term: term) -> Tensor:
        """Mean (N,C,H,W) over the draws of a function of the terms."""
        generator = torch.Generator("cpu").manual_seed(self.seed)
        drawn = torch.randint(len(job.references), (self.samples,), generator=generator, device="cpu")
        shares = torch.rand(self.samples, generator=generator, device="cpu").tolist()
        starts = job.probe.placed(job.references[drawn.to(job.references.device)])

        def path_point(k: int, images: Tensor) -> Tensor:
            return torch.lerp(starts[k].expand_as(images), images, shares[k])

        def term(k: int, images: Tensor, gradients: Tensor) -> Tensor:
            return of((images - starts[k]) * gradients)

        return mean_gradients(job, self.samples, path_point, term)


@dataclass(frozen=True)
class ExpectedGradients(ReferenceMethod, SignedMethod):
    """Gradients on paths from reference images, times the difference: Σ_channels |mean (x − b) · ∂f/∂x|.

    The gradient is that at b + α (x − b). Each sample draws a reference image b and α in 0..1.
    Erion et al., "Improving performance of deep learning models with axiomatic attribution priors and expected
    gradients", 2021.

    Args:
        samples: Number of paths from reference images.
        seed: Seed of the paths.

    Example:
        maps = agop.explain(model, images, "expected-gradients", references=training_images)
    """

    name: ClassVar[str] = "expected-gradients"

    def attribution(self, job: Job) -> Tensor:
        """Signed attribution (N,C,H,W). Its sum converges to f(x) − mean of f(b)."""
        return self.mean_term(job)
