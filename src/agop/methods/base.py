"""What every method is: a frozen dataclass whose fields are its configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from agop.errors import InputError
from agop.gradients import Probe
from agop.registry import Registry
from agop.statistic import AGOP

registry: Registry[type[Method]] = Registry("method")


@dataclass(frozen=True)
class Job:
    """What a method explains: images (N,C,H,W) for targets (N,), or the predicted classes if None.

    `rows` bounds how many images may go through the model at once.
    """

    images: Tensor
    targets: Tensor | None
    rows: int
    given_prior: AGOP | None = None

    @property
    def prior(self) -> AGOP:
        """The prior; `explain` has made sure that a method with needs_prior has one."""
        assert self.given_prior is not None
        return self.given_prior


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
    def maps(self, probe: Probe, job: Job) -> Tensor:
        """Maps (N,H,W), non-negative."""

    def prepared(self, probe: Probe, image: Tensor) -> Method:
        """The method with what it looks up in the model once, before the images go by."""
        return self


def mean_gradients(
    probe: Probe, job: Job, points: int, point: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """The mean over k = 0 .. points-1 of the gradients (N,C,H,W) at point(k, images).

    As many points share a pass as `rows` allows, so memory grows neither with points nor with images.
    """
    images, targets = probe.placed(job.images), job.targets
    targets = probe.predict(images) if targets is None else targets
    together = max(1, job.rows // len(images))
    total = torch.zeros_like(images)
    for ks in _runs(points, together):
        batch = torch.cat([point(k, images) for k in ks])
        gradients = probe.gradients(batch, targets.repeat(len(ks))).values
        total += gradients.unflatten(0, (len(ks), -1)).sum(dim=0)
    return total / points


def _runs(count: int, length: int) -> Iterator[range]:
    for start in range(0, count, length):
        yield range(start, min(start + length, count))


def check_positive(method: Method, field: str, value: float) -> None:
    """Raise unless a method's field is above zero."""
    if not value > 0:
        raise InputError(f"{method.name}: {field} is {value}: give a number above 0")
