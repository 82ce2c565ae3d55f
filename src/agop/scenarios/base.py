"""What every scenario is: data with a known truth from a seed, the network that learns it, and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from agop.errors import InputError
from agop.registry import Registry, unknown_name_error

registry: Registry[Scenario] = Registry("scenario")


@dataclass(frozen=True)
class Split:
    """Images (N,C,H,W), labels (N,) and masks (N,H,W), true where the signal stands; `others` by kind."""

    images: Tensor
    labels: Tensor
    masks: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def by_kind(self, main: str) -> dict[str, Tensor]:
        """All masks by their kind, the main one first."""
        return {main: self.masks, **self.others}

    def first(self, count: int) -> Split:
        """The first so many samples."""
        others = {kind: masks[:count] for kind, masks in self.others.items()}
        return Split(self.images[:count], self.labels[:count], self.masks[:count], others)


Splits = tuple[Split, Split, Split]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, and how often the hook looks.

    The optimizer is "adam" or "adamw", the schedule "cosine" (a step an epoch) or "one-cycle" (a step a batch). `flips`
    mirrors half of the images. `best` keeps the weights of the epoch with the best validation accuracy, else the
    last. A snapshot every `snapshot_every` steps, or each epoch; a hook's pass every `hook_every` steps.
    """

    epochs: int = 100
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: str = "adam"
    schedule: str = "cosine"
    flips: bool = False
    best: bool = False
    snapshot_every: int | None = 100
    hook_every: int = 1


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
    # The prior of the AGOP methods: collected while training, or by one pass over the data at the final weights.
    prior: str = "training"
    # Images on which the quality of each snapshot is measured.
    watched: int = 1000
    # Threads of a process. A fixed number: the last digits of a training depend on it.
    threads: int = 1
    # The values of black and white in each channel of a normalised image.
    black: tuple[float, ...] | None = None
    white: tuple[float, ...] | None = None
    # What the classes are called.
    classes: tuple[str, ...] = ()
    # A sentence for the report, where a run can choose its network or data.
    told: str | None = None
    configure: Callable[[Mapping[str, Any]], Scenario] | None = None

    def configured(self, options: Mapping[str, Any]) -> Scenario:
        """The scenario with a run's options."""
        if self.configure is not None:
            return self.configure(options)
        if options:
            raise InputError(f"{self.name} takes no options, {', '.join(options)} given: leave them out")
        return self

    def splits(self, background: str, seed: int, masks: str | None = None) -> Splits:
        """Training, validation and test data, by default with the first kind of masks."""
        masks = self.masks[0] if masks is None else masks
        for kind, value, known in (("background", background, self.backgrounds), ("kind of mask", masks, self.masks)):
            if value not in known:
                raise unknown_name_error(kind, value, known)
        return self.make(background, seed, masks)


def register(scenario: Scenario) -> Scenario:
    """Make a scenario known under its name."""
    if scenario.name in registry.names():
        raise InputError(f"there is already a scenario named {scenario.name!r}: choose another name")
    registry.add(scenario.name, scenario)
    return scenario
