"""Intervention: the base class of all interventions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from agop.registry import Registry

registry: Registry[type[Intervention]] = Registry(
    "intervention", first=("transplant", "remove", "transplant-elsewhere", "colour", "border", "high-frequency")
)


@dataclass(frozen=True, eq=False)
class Intervention(ABC):
    """Changes images in one respect. The fields of the class are its configuration.

    Hosts (N,C,H,W) are images of other classes, donors (N,C,H,W) images of the class, paired by position.
    """

    name: ClassVar[str]
    # True if the donors are changed instead of the hosts: something of the class is taken away.
    removes: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            registry.add(cls.name, cls)

    @abstractmethod
    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        """The changed images (N,C,H,W): the hosts with something of their donors, or the reverse if it removes."""

    def of(self, pairs: slice) -> Intervention:
        """The same for a part of the pairs of hosts and donors."""
        return self

    def statistics(self, images: Tensor) -> Tensor:
        """Numbers (N,F) that describe what is taken from images (N,C,H,W); by default none."""
        return images.new_zeros(len(images), 0)
