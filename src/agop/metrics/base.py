"""Metric: a function from a batch to one score per sample, with bounds and a direction.

An undefined score is NaN. `defined` has the rules, which all metrics share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError
from agop.model.probe import at_least_float32
from agop.registry import Registry

FIRST = ("pointing_game", "iou", "energy", "deletion", "insertion", "average_precision", "rank_accuracy")
# Default number of steps for deletion and insertion, at most.
MOST_STEPS = 64
registry: Registry[Metric] = Registry("metric", first=FIRST)


@dataclass(frozen=True)
class Metric:
    """One score per sample: `metric(maps, masks)` or, with needs_model, `metric(model, images, maps)`."""

    function: Callable[..., Tensor]
    name: str
    label: str
    bounds: tuple[float, float]
    higher_is_better: bool
    needs_model: bool = False
    __doc__: str | None = None
    # The optional dependency that it needs. Such a metric is computed only if it is named.
    extra: str | None = None

    @property
    def takes_references(self) -> bool:
        """True if it has an option `references`: other images, for example from the training data."""
        return "references" in signature(self.function).parameters

    def described(self, steps: int | None = None) -> dict[str, Any]:
        """The metric's entry in a report. The values of options replace their names in its description."""
        text, values = self.__doc__ or "", {"steps": f"at most {MOST_STEPS}" if steps is None else f"{steps}"}
        for name, option in signature(self.function).parameters.items():
            value = f"{option.default:g}" if isinstance(option.default, float) else values.get(name, name)
            text = text.replace(f"`{name}`", value)
        bounds = self.bounds if all(map(math.isfinite, self.bounds)) else None  # JSON has no infinity
        return {"label": self.label, "higher_is_better": self.higher_is_better, "bounds": bounds, "what": text}

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        """The scores (N,), NaN where undefined."""
        return self.function(*arguments, **options)


def metric(
    label: str,
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    higher_is_better: bool = True,
    needs_model: bool = False,
    extra: str | None = None,
) -> Callable[[Callable[..., Tensor]], Metric]:
    """Register the decorated function under its name."""

    def register(function: Callable[..., Tensor]) -> Metric:
        name, text = function.__name__, function.__doc__
        new = Metric(function, name, label, bounds, higher_is_better, needs_model, text, extra)
        registry.add(new.name, new)
        return new

    return register


@dataclass(frozen=True)
class Located:
    """A batch with flattened pixels: maps (N,P), masks as passed (N,P), sums of the maps (N,), and which samples are
    defined (N,).
    """

    maps: Tensor
    truth: Tensor
    totals: Tensor
    defined: Tensor

    @cached_property
    def masks(self) -> Tensor:
        """The masks (N,P) as 0, 1 or −1 in the maps' dtype."""
        return self.truth.to(self.maps.dtype)

    @cached_property
    def inside(self) -> Tensor:
        """True (N,P) inside the mask."""
        return self.truth if self.truth.dtype == torch.bool else self.truth > 0

    def scores(self, values: Tensor) -> Tensor:
        """The values (N,), NaN where the score is undefined."""
        return torch.where(self.defined, values.double(), torch.nan)


def located(maps: Any, masks: Any, *, signed: bool = False) -> Located:
    """Check a batch: non-negative maps (N,H,W), and masks of that shape with values 0/1 or, if signed, −1/0/1."""
    try:
        maps, masks = torch.as_tensor(maps), torch.as_tensor(masks)
    except (TypeError, ValueError, RuntimeError):
        types = f"maps is a {type(maps).__name__}, masks a {type(masks).__name__}"
        raise InputError(f"{types}: give tensors or arrays (N,H,W)") from None
    if maps.ndim != 3:
        raise InputError(f"maps have shape {tuple(maps.shape)}: give (N,H,W)")
    if masks.shape != maps.shape:
        shapes = f"masks have shape {tuple(masks.shape)}, maps {tuple(maps.shape)}"
        raise InputError(f"{shapes}: give one mask per map, of the same size")
    rows = maps.flatten(1).to(at_least_float32(maps.dtype))
    if float(rows.detach().min() if rows.numel() else 0) < 0:
        raise InputError(f"maps have minimum {float(rows.min()):.3g}: give non-negative maps, for example maps.abs()")
    if masks.dtype != torch.bool:
        _check_values(masks, (-1, 0, 1) if signed else (0, 1))
    truth = masks.flatten(1).to(maps.device)
    totals = _totals(rows)
    return Located(rows, truth, totals, ~_any(_undefined(totals, truth)))


def _check_values(masks: Tensor, allowed: tuple[int, ...]) -> None:
    valid = torch.isin(masks, torch.tensor(allowed, dtype=masks.dtype, device=masks.device))
    if not bool(valid.all()):
        hint = "" if -1 in allowed else "; for signed masks pass signed=True"
        raise InputError(f"masks have values other than {', '.join(map(str, allowed))}: give boolean masks{hint}")


def defined(maps: Tensor, masks: Tensor | None = None) -> Tensor:
    """True (N,) where scores are defined: the map is finite and not zero everywhere, the mask not empty."""
    return ~_any(_undefined(_totals(maps), masks))


def reasons(maps: Tensor, masks: Tensor | None = None) -> list[str | None]:
    """Why a sample's scores are undefined, or None if they are defined."""
    texts = ("map is not finite", "map is zero everywhere", "mask is empty")
    flags = zip(*(part.tolist() for part in _undefined(_totals(maps), masks)), strict=True)
    return [next((text for text, flag in zip(texts, sample, strict=True) if flag), None) for sample in flags]


def _totals(maps: Tensor) -> Tensor:
    return maps.flatten(1).sum(dim=1, dtype=torch.float64)


def _undefined(totals: Tensor, masks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    # Maps are non-negative: a sum of zero means zero everywhere.
    never = torch.zeros_like(totals, dtype=torch.bool)
    empty = never if masks is None else torch.count_nonzero(masks.flatten(1), dim=1).to(totals.device) == 0
    return ~totals.isfinite(), totals == 0, empty


def _any(flags: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    broken, zero, empty = flags
    return broken | zero | empty
