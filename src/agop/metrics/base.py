"""What every metric is: a function from batches to one score a sample, with bounds and a direction.

The rules for what is undefined are the same everywhere and stand in `defined`; an undefined score is NaN.
"""

from __future__ import annotations

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

PAPER = ("pointing_game", "iou", "energy", "deletion", "insertion", "average_precision", "rank_accuracy")
# Of deletion and insertion, if nobody says how many.
MOST_STEPS = 64
registry: Registry[Metric] = Registry("metric", first=PAPER)


@dataclass(frozen=True)
class Metric:
    """A score for each sample: `metric(maps, masks)` or, if it asks the model, `metric(model, images, maps)`."""

    function: Callable[..., Tensor]
    name: str
    label: str
    bounds: tuple[float, float]
    higher_is_better: bool
    needs_model: bool = False
    __doc__: str | None = None

    def described(self, steps: int | None = None) -> dict[str, Any]:
        """What a report says of it, with the values of its options in place of their names."""
        what, values = self.__doc__ or "", {"steps": f"at most {MOST_STEPS}" if steps is None else f"{steps}"}
        for name, option in signature(self.function).parameters.items():
            told = f"{option.default:g}" if isinstance(option.default, float) else values.get(name, name)
            what = what.replace(f"`{name}`", told)
        about = {"label": self.label, "higher_is_better": self.higher_is_better, "bounds": self.bounds}
        return about | {"what": what}

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        """The scores (N,), NaN where undefined."""
        return self.function(*arguments, **options)


def metric(
    label: str, bounds: tuple[float, float] = (0.0, 1.0), *, higher_is_better: bool = True, needs_model: bool = False
) -> Callable[[Callable[..., Tensor]], Metric]:
    """Register a function under its name."""

    def registered(function: Callable[..., Tensor]) -> Metric:
        made = Metric(function, function.__name__, label, bounds, higher_is_better, needs_model, function.__doc__)
        registry.add(made.name, made)
        return made

    return registered


@dataclass(frozen=True)
class Located:
    """A batch with its pixels in a row: maps (N,P), the truth (N,P) as given, the maps' sums (N,), and which samples
    are defined (N,).
    """

    maps: Tensor
    truth: Tensor
    totals: Tensor
    defined: Tensor

    @cached_property
    def masks(self) -> Tensor:
        """The truth (N,P) as numbers, 0, 1 or −1, of the maps' dtype."""
        return self.truth.to(self.maps.dtype)

    @cached_property
    def inside(self) -> Tensor:
        """True (N,P) in the mask."""
        return self.truth if self.truth.dtype == torch.bool else self.truth > 0

    def scores(self, values: Tensor) -> Tensor:
        """The values (N,), NaN where the score is undefined."""
        return torch.where(self.defined, values.double(), torch.nan)


def located(maps: Any, masks: Any, *, signed: bool = False) -> Located:
    """The batch checked: maps non-negative (N,H,W), masks of the same shape, 0/1 or, if asked for, −1/0/1."""
    try:
        maps, masks = torch.as_tensor(maps), torch.as_tensor(masks)
    except (TypeError, ValueError, RuntimeError):
        told = f"maps is a {type(maps).__name__}, masks a {type(masks).__name__}"
        raise InputError(f"{told}: give tensors or arrays (N,H,W)") from None
    if maps.ndim != 3:
        raise InputError(f"maps have shape {tuple(maps.shape)}: give (N,H,W)")
    if masks.shape != maps.shape:
        told = f"masks have shape {tuple(masks.shape)}, maps {tuple(maps.shape)}"
        raise InputError(f"{told}: give one mask a map, of the same size")
    rows = maps.flatten(1).to(at_least_float32(maps.dtype))
    if float(rows.detach().min() if rows.numel() else 0) < 0:
        raise InputError(f"maps go down to {float(rows.min()):.3g}: give non-negative ones, for example maps.abs()")
    if masks.dtype != torch.bool:
        _check_values(masks, (-1, 0, 1) if signed else (0, 1))
    truth = masks.flatten(1).to(maps.device)
    totals = _totals(rows)
    return Located(rows, truth, totals, ~_any(_undefined(totals, truth)))


def _check_values(masks: Tensor, allowed: tuple[int, ...]) -> None:
    known = torch.isin(masks, torch.tensor(allowed, dtype=masks.dtype, device=masks.device))
    if not bool(known.all()):
        hint = "" if -1 in allowed else "; for masks with signs pass signed=True"
        raise InputError(f"masks hold values other than {', '.join(map(str, allowed))}: give boolean masks{hint}")


def defined(maps: Tensor, masks: Tensor | None = None) -> Tensor:
    """True (N,) where scores are defined: the map is finite and not zero everywhere, the mask not empty."""
    return ~_any(_undefined(_totals(maps), masks))


def reasons(maps: Tensor, masks: Tensor | None = None) -> list[str | None]:
    """Why a sample's scores are undefined, or None where they are not."""
    told = ("map is not finite", "map is zero everywhere", "mask is empty")
    flags = zip(*(part.tolist() for part in _undefined(_totals(maps), masks)), strict=True)
    return [next((why for why, flag in zip(told, sample, strict=True) if flag), None) for sample in flags]


def _totals(maps: Tensor) -> Tensor:
    return maps.flatten(1).sum(dim=1, dtype=torch.float64)


def _undefined(totals: Tensor, masks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    # Maps are not negative, so their sums tell: zero or not finite.
    nowhere = torch.zeros_like(totals, dtype=torch.bool)
    empty = nowhere if masks is None else torch.count_nonzero(masks.flatten(1), dim=1).to(totals.device) == 0
    return ~totals.isfinite(), totals == 0, empty


def _any(flags: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    broken, zero, empty = flags
    return broken | zero | empty
