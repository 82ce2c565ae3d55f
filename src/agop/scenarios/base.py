"""What every scenario is: data with a known truth from a seed, the network that learns it, and the recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from agop.errors import InputError
from agop.registry import Registry, unknown

registry: Registry[Scenario] = Registry("scenario")


@dataclass(frozen=True)
class Split:
    """Images (N,C,H,W), labels (N,) and masks (N,H,W), true where the signal stands."""

    images: Tensor
    labels: Tensor
    masks: Tensor

    def __len__(self) -> int:
        return len(self.labels)


Splits = tuple[Split, Split, Split]


@dataclass(frozen=True)
class Recipe:
    """How the network is trained: Adam with cosine annealing."""

    epochs: int = 100
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Scenario:
    """A task of a benchmark: `splits(background, seed, masks)` gives training, validation and test data."""

    name: str
    benchmark: str
    make: Callable[[str, int, str], Splits]
    network: Callable[[], nn.Module]
    layer: str
    backgrounds: tuple[str, ...]
    masks: tuple[str, ...] = ("true",)
    recipe: Recipe = Recipe()

    def splits(self, background: str, seed: int, masks: str = "true") -> Splits:
        """Training, validation and test data."""
        for kind, value, known in (("background", background, self.backgrounds), ("kind of mask", masks, self.masks)):
            if value not in known:
                raise unknown(kind, value, known)
        return self.make(background, seed, masks)


def register(scenario: Scenario) -> Scenario:
    """Make a scenario known under its name."""
    if scenario.name in registry.names():
        raise InputError(f"there is already a scenario named {scenario.name!r}: choose another name")
    registry.add(scenario.name, scenario)
    return scenario
