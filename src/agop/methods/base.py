"""What every method is: a frozen dataclass whose fields are its configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from agop.errors import InputError, PriorError
from agop.model.probe import Probe, at_least_float32
from agop.registry import Registry
from agop.statistic.agop import AGOP

PAPER = (
    "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
    "agop-local", "agop-weighted", "agop-global",
)  # fmt: skip
registry: Registry[type[Method]] = Registry("method", first=PAPER)


@dataclass(frozen=True)
class Job:
    """What a method explains: images (N,C,H,W) for targets (N,), or the predicted classes if None.

    `rows` bounds how many images may go through the model at once. `explain` makes sure that a method
    that needs a prior has one, and one that needs the model has a probe of it.
    """

    images: Tensor
    targets: Tensor | None
    rows: int
    given_prior: AGOP | None = None
    given_probe: Probe | None = None

    @property
    def prior(self) -> AGOP:
        """The statistic of the model."""
        if self.given_prior is None:
            raise PriorError("this method needs a prior: make one with agop.fit or `agop fit`, or pass prior=")
        return self.given_prior

    @property
    def probe(self) -> Probe:
        """The model, held still."""
        if self.given_probe is None:
            raise InputError("this method asks the model: set needs_model = True in its class")
        return self.given_probe

    def gradients(self) -> Tensor:
        """The gradients (N,C,H,W) of the targets' logits at the images."""
        return self.probe.gradients(self.images, self.targets).values


@dataclass(frozen=True)
class Method(ABC):
    """A subclass with a `name` registers itself."""

    name: ClassVar[str]
    needs_prior: ClassVar[bool] = False
    # A method that asks nothing of the model gets all images at once, else at most `rows` of them.
    needs_model: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            registry.add(cls.name, cls)

    @abstractmethod
    def maps(self, job: Job) -> Tensor:
        """Maps (N,H,W), non-negative."""

    def prepared(self, job: Job) -> Method:
        """The method with what it looks up in the model once, before the images go by in parts."""
        return self


def mean_gradients(job: Job, points: int, point: Callable[[int, Tensor], Tensor]) -> Tensor:
    """The mean over k = 0 .. points-1 of the gradients (N,C,H,W) at point(k, images).

    As many points share a pass as `rows` allows, so memory grows neither with points nor with images.
    """
    probe = job.probe
    images, targets = probe.placed(job.images), job.targets
    targets = probe.predict(images) if targets is None else targets
    together = max(1, job.rows // len(images))
    total = torch.zeros_like(images, dtype=at_least_float32(images.dtype))
    for ks in _runs(points, together):
        batch = torch.cat([point(k, images) for k in ks])
        gradients = probe.gradients(batch, targets.repeat(len(ks))).values
        total += gradients.reshape(len(ks), *images.shape).sum(dim=0)
    return total / points


def _runs(count: int, length: int) -> Iterator[range]:
    for start in range(0, count, length):
        yield range(start, min(start + length, count))


def takes_layer(method: Method | type[Method]) -> bool:
    """True if the method weighs a layer's map, which can be named."""
    return any(field.name == "layer" for field in fields(method))


def check_positive(method: Method, field: str, value: float) -> None:
    """Raise unless a method's field is above zero."""
    if not value > 0:
        raise InputError(f"{method.name}: {field} is {value}: give a number above 0")
