"""A scenario: data with ground-truth masks from a seed, a network that learns it, and a training recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from torch import Tensor, nn

from agop.errors import InputError
from agop.registry import Registry, unknown_name_error

OptionsType = TypeVar("OptionsType")
registry: Registry[Scenario] = Registry("scenario")


@dataclass(frozen=True)
class Split:
    """Images (N,C,H,W), labels (N,) and masks (N,H,W), true where the signal is; `others` are masks of other kinds."""

    images: Tensor
    labels: Tensor
    masks: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def by_kind(self, main: str) -> dict[str, Tensor]:
        """All masks by kind. `main` is the name of the first kind."""
        return {main: self.masks, **self.others}

    def first(self, count: int) -> Split:
        """The first `count` samples."""
        others = {kind: masks[:count] for kind, masks in self.others.items()}
        return Split(self.images[:count], self.labels[:count], self.masks[:count], others)


Splits = tuple[Split, Split, Split]


@dataclass(frozen=True)
class Recipe:
    """Training options, and how often AGOP is collected.

    The optimizer is "adam" or "adamw". The schedule is "cosine" (stepped per epoch) or "one-cycle" (stepped per batch).
    `flips` mirrors half of the images. `best` keeps the weights of the epoch with the best validation accuracy instead
    of the last. A snapshot is taken every `snapshot_every` steps (None: every epoch), a hook pass every `hook_every`.
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
    """A task of a benchmark. `splits(background, seed, masks)` returns training, validation and test data."""

    name: str
    benchmark: str
    make: Callable[[str, int, str], Splits]
    network: Callable[[], nn.Module]
    # GradCAM's layer; None for a network without feature maps.
    layer: str | None
    backgrounds: tuple[str, ...]
    masks: tuple[str, ...] = ("true",)
    recipe: Recipe = Recipe()
    # Prior of the AGOP methods: "training" (collected by the hook) or "checkpoint" (one pass at the final weights).
    prior: str = "training"
    # Validation accuracy below which a network hasn't learned the task.
    learned: float = 0.0
    # Number of validation images on which each snapshot is scored.
    snapshot_images: int = 1000
    # Number of 2×2 grids of test images that are scored as well; the network must accept images of twice the size.
    grids: int = 0
    # Threads per process. Fixed, because the last digits of a training depend on it.
    threads: int = 1
    # Values of black and white in each channel of a normalised image.
    black: tuple[float, ...] | None = None
    white: tuple[float, ...] | None = None
    # The scenario whose data it uses; empty if it has its own. Scenarios of one task differ in their network only.
    task: str = ""
    # Short name of the network: cnn, mlp, llr …
    network_name: str = ""
    # Names of the classes.
    classes: tuple[str, ...] = ()
    # A sentence about network and data for the report, if a run can choose them.
    description: str | None = None
    configure: Callable[[Mapping[str, Any]], Scenario] | None = None

    def with_options(self, options: Mapping[str, Any]) -> Scenario:
        """The scenario with a run's options. Raises if it has none."""
        if self.configure is not None:
            return self.configure(options)
        if options:
            raise InputError(f"{self.name} has no options: remove {', '.join(options)}")
        return self

    def splits(self, background: str, seed: int, masks: str | None = None) -> Splits:
        """Training, validation and test data, by default with the first kind of masks, also called "own" or "true"."""
        masks = self.masks[0] if masks in (None, "own", "true") else masks
        if background not in self.backgrounds:
            raise unknown_name_error("background", background, self.backgrounds)
        if masks not in self.masks:
            raise unknown_name_error("kind of mask", masks, self.masks)
        return self.make(background, seed, masks)


def options_of(kind: type[OptionsType], options: Mapping[str, Any]) -> OptionsType:
    """A scenario's options as an instance of their dataclass. Raises UnknownNameError for other names."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # any dataclass
    unknown = options.keys() - set(names)
    if unknown:
        raise unknown_name_error("option", min(unknown), names)
    return kind(**options)


def register(scenario: Scenario) -> Scenario:
    """Register a scenario under its name. Raises if the name is taken."""
    if scenario.name in registry.names():
        raise InputError(f"scenario {scenario.name!r} already exists: choose another name")
    registry.add(scenario.name, scenario)
    return scenario
