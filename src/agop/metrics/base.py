"""Metric: a function from a batch to one score per sample, with bounds and a direction.

An undefined score is NaN. `defined` has the rules, which all metrics share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import cleandoc, signature
from typing import Any

import torch
from torch import Tensor

from agop.errors import InputError, warn
from agop.model.probe import at_least_float32, float64_device
from agop.registry import Registry

FIRST = ("pointing_game", "iou", "energy", "deletion", "insertion", "average_precision", "rank_accuracy")
# Default number of steps for deletion and insertion, at most.
MOST_STEPS = 64
registry: Registry[Metric] = Registry("metric", first=FIRST)
# Added to the docstring of each metric.
_OF_MASKS = """

Args:
    maps: Maps (N,H,W), or (N,D,H,W) of volumes. Of maps with signs, the positive part counts, with a warning.
    masks: Masks (N,H,W): boolean or 0/1.
    signed: Accept masks with −1/0/1.

Returns:
    Scores (N,), NaN where undefined.

Raises:
    InputError: For maps or masks of another shape or range.
"""
_OF_A_MODEL = """

Args:
    model: A torch.nn.Module.
    images: Images (N,C,H,W), or volumes (N,C,D,H,W).
    maps: Maps (N,H,W). Of a map with signs, the positive part counts.
    target: A class, one class per image, or None for the predicted class.
    steps: Number of steps of nearly equal size, at most one per pixel.
    fill: Value of a changed pixel.
    batch_size: The most images per forward pass.
    output: As in `explain`. Outputs with classes are followed by the target's probability. Another output, if it is no
        probability, is divided by its absolute value on the whole image; the scores may then be outside of 0 to 1.
    forward: As in `explain`.

Returns:
    Scores (N,), NaN where undefined.

Raises:
    InputError: For maps of another shape, and for more steps than pixels.
"""


@dataclass(frozen=True)
class Metric:
    """One score per sample: `metric(maps, masks)` or, with needs_model, `metric(model, images, maps)`.

    Args:
        function: The function that is called.
        name: Name in tables and commands.
        label: Short name for the head of a column.
        bounds: Smallest and largest score.
        higher_is_better: False if a lower score is better.
        needs_model: True if it queries the model.
        extra: The optional dependency that it needs. Such a metric is computed only if it is named.

    Example:
        scores = agop.metrics.get("energy")(maps, masks)
    """

    function: Callable[..., Tensor]
    name: str
    label: str
    bounds: tuple[float, float]
    higher_is_better: bool
    __doc__: str | None  # by default that of the class
    needs_model: bool = False
    extra: str | None = None

    def takes(self, option: str) -> bool:
        """True if it has an option of this name: references, output."""
        return option in signature(self.function).parameters

    def described(self, steps: int | None = None) -> dict[str, Any]:
        """The metric's entry in a report. The values of options replace their names in its description."""
        text = re.split(r"\s*\n\s*Example:", self.function.__doc__ or "")[0]
        values = {"steps": f"at most {MOST_STEPS}" if steps is None else f"{steps}"}
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
    """Register the decorated function under its name. Arguments that all metrics share are added to its docstring.

    Args:
        label: Short name for the head of a column.
        bounds: Smallest and largest score.
        higher_is_better: False if a lower score is better.
        needs_model: True if the function takes model, images and maps instead of maps and masks.
        extra: The optional dependency that it needs.

    Returns:
        A decorator that returns a `Metric`.

    Raises:
        InputError: If the name belongs to another metric.

    Example:
        @agop.metrics.metric("Mean")
        def mean_inside(maps, masks):
            return (maps * masks).sum((1, 2)) / masks.sum((1, 2))
    """

    def register(function: Callable[..., Tensor]) -> Metric:
        text = cleandoc(function.__doc__ or "") + (_OF_A_MODEL if needs_model else _OF_MASKS)
        new = Metric(function, function.__name__, label, bounds, higher_is_better, text, needs_model, extra)
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
    """Check a batch: maps (N,H,W) or (N,D,H,W), and masks of that shape with values 0/1 or, if signed, −1/0/1."""
    try:
        maps, masks = torch.as_tensor(maps), torch.as_tensor(masks)
    except (TypeError, ValueError, RuntimeError):
        types = f"maps is a {type(maps).__name__}, masks a {type(masks).__name__}"
        raise InputError(f"{types}: give tensors or arrays (N,H,W)") from None
    if maps.ndim not in (3, 4):
        raise InputError(f"maps have shape {tuple(maps.shape)}: give (N,H,W), or (N,D,H,W) of volumes")
    if masks.shape != maps.shape:
        shapes = f"masks have shape {tuple(masks.shape)}, maps {tuple(maps.shape)}"
        raise InputError(f"{shapes}: give one mask per map, of the same size")
    maps = maps.to(float64_device(maps.device))
    rows = positive_part(maps).flatten(1).to(at_least_float32(maps.dtype))
    allowed = (-1, 0, 1) if signed else (0, 1)
    if masks.dtype != torch.bool and not bool(torch.isin(masks, masks.new_tensor(allowed)).all()):
        hint = "" if signed else "; for signed masks pass signed=True"
        raise InputError(f"masks have values other than {', '.join(map(str, allowed))}: give boolean masks{hint}")
    truth = masks.flatten(1).to(maps.device)
    totals = _totals(rows)
    return Located(rows, truth, totals, ~torch.stack(_undefined(totals, truth)).any(dim=0))


def positive_part(maps: Tensor) -> Tensor:
    """The maps with 0 for negative values, with a warning if there are any."""
    if not bool((maps < 0).any()):
        return maps
    warn("maps have negative values: metrics take their positive part; for all evidence pass maps.abs()")
    return maps.clamp_min(0)


def defined(maps: Tensor, masks: Tensor | None = None) -> Tensor:
    """True (N,) where scores are defined: the map is finite and not zero everywhere, the mask not empty."""
    return ~torch.stack(_undefined(_totals(maps), masks)).any(dim=0)


def reasons(maps: Tensor, masks: Tensor | None = None) -> list[str | None]:
    """Why a sample's scores are undefined, or None if they are defined."""
    texts = ("map is not finite", "map is zero everywhere", "mask is empty")
    flags = zip(*(part.tolist() for part in _undefined(_totals(maps), masks)), strict=True)
    return [next((text for text, flag in zip(texts, sample, strict=True) if flag), None) for sample in flags]


def _totals(maps: Tensor) -> Tensor:
    return maps.to(float64_device(maps.device)).flatten(1).sum(dim=1, dtype=torch.float64)


def _undefined(totals: Tensor, masks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    # Maps are non-negative: a sum of zero means zero everywhere.
    never = torch.zeros_like(totals, dtype=torch.bool)
    empty = never if masks is None else torch.count_nonzero(masks.flatten(1), dim=1).to(totals.device) == 0
    return ~totals.isfinite(), totals == 0, empty
