"""sanity(): do a method's maps depend on what the model has learned?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning, InputError
from agop.evaluating.rank_correlation import rank_correlation
from agop.explaining.explain import explain, resolve_method
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.model.layers import Layer, named_layer
from agop.model.probe import check_images, probing, rows_for, unwrapped
from agop.model.randomised import copied, layers_from_the_top, randomise
from agop.model.targets import Target, target_indices
from agop.report.estimate import Estimate
from agop.report.numbers import counted
from agop.statistic.agop import AGOP
from agop.system.progress import track

# Maps of a network without any trained weight that correlate this much with those of the trained one.
THRESHOLD = 0.95


@dataclass(frozen=True, repr=False)
class Sanity:
    """Rank correlations (S,N) of maps with those of the trained model, after each step of randomising its weights.

    `layers` (S) are the names of the layers that each step adds. The last step has randomised all of them.
    """

    method: str
    layers: tuple[tuple[str, ...], ...]
    correlations: Tensor
    unchanged: bool
    with_prior: bool = False

    @property
    def model_independent(self) -> bool:
        """True if the maps don't change when all weights are random, or have a mean correlation of at least 0.95.

        The correlation counts if it's defined for at least half of the images.
        """
        last = self._estimates()[-1]
        if last is None or 2 * len(last.values) < self._images:
            return self.unchanged
        return self.unchanged or last.mean >= THRESHOLD

    @property
    def _images(self) -> int:
        return self.correlations.shape[1]

    def _estimates(self) -> list[Estimate | None]:
        """Mean correlation of each step with its interval; None if it's undefined for every image."""
        defined = [tuple(row[~row.isnan()].tolist()) for row in self.correlations]
        return [Estimate(values, (-1.0, 1.0)) if values else None for values in defined]

    def __repr__(self) -> str:
        """A table of the steps, and a verdict."""
        names = [_step(step, number == len(self.layers)) for number, step in enumerate(self.layers, 1)]
        width = max(map(len, ("randomised", *names)))
        texts = map(self._text, self._estimates())
        rows = zip(("randomised", "nothing", *names), ("correlation", "1.000", *texts), strict=True)
        start = f"rank correlation of {self.method} maps with those of the trained model: means over "
        notes = ["an image isn't counted if one of its maps is constant"] if self.correlations.isnan().any() else []
        return "\n".join(
            [f"{start}{counted(self._images, 'image')} with 95 % intervals"]
            + [f"{name.ljust(width)}  {text}" for name, text in rows]
            + [*notes, self._verdict()]
        )

    def _text(self, estimate: Estimate | None) -> str:
        """Mean and interval, with the number of images if it isn't defined for all."""
        count = 0 if estimate is None else len(estimate.values)
        few = "" if count == self._images else f" ({count} of {counted(self._images, 'image')})"
        return ("–" if estimate is None else str(estimate)) + few

    def _verdict(self) -> str:
        if not self.model_independent:
            return "the maps depend on the model's weights"
        given = " given the prior, which is that of the trained model in every step" if self.with_prior else ""
        how = "don't change at all" if self.unchanged else f"hardly change (correlation of at least {THRESHOLD})"
        return f"model-independent{given}: the maps {how} when all weights are random"


def sanity(
    model: nn.Module,
    images: Tensor,
    method: str | Method = "agop-weighted",
    prior: AGOP | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    references: Tensor | None = None,
    steps: int | None = 8,
    seed: int = 0,
) -> Sanity:
    """Rank correlations of a method's maps with those of the same model with random weights, from the top down.

    The sanity check of Adebayo et al.: a copy of the model loses the weights of its last layer, then of the layer
    before it as well, and so on, until all weights are random. There are at most `steps` steps, of several layers in a
    deep model; None: one per layer. The class explained is always that of the trained model. The prior is kept.
    """
    check_images(images)
    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}: give a positive number, or None for one step per layer")
    model = unwrapped(model)
    configured = _with_named_layer(resolve_method(method, layer), model)
    targets = _targets(model, images, target, batch_size)

    def maps_of(network: nn.Module) -> Tensor:
        return explain(
            network, images, configured, prior, targets, batch_size=batch_size, references=references, nan="skip"
        )

    trained = maps_of(model)
    names = layers_from_the_top(model, images[:1])
    if not names:
        raise InputError("the model has no parameters, so there is nothing to randomise")
    groups, correlations, maps = _groups(names, steps), [], trained
    for network in track(_cascade(model, groups, seed), "randomising", total=len(groups)):
        with warnings.catch_warnings():
            # The prior comes from other weights on purpose; other warnings were issued for the trained model.
            warnings.simplefilter("ignore", AGOPWarning)
            maps = maps_of(network)
        correlations.append(rank_correlation(trained, maps))
    unchanged = torch.equal(trained, maps)
    name = method if isinstance(method, str) else configured.name
    return Sanity(name, tuple(groups), torch.stack(correlations), unchanged, configured.needs_prior)


def _cascade(model: nn.Module, groups: Sequence[Sequence[str]], seed: int) -> Iterator[nn.Module]:
    """One copy of the model, with the layers of one more group randomised each time."""
    network = copied(model)
    number = 0
    for group in groups:
        for name in group:
            # A seed per layer, so that the weights don't depend on the number of steps.
            randomise(network.get_submodule(name), seed + number)
            number += 1
        yield network


def _groups(names: Sequence[str], steps: int | None) -> list[tuple[str, ...]]:
    """The layers of each step: the first one alone, then as even as possible."""
    count = len(names) if steps is None else min(steps, len(names))
    ends = [1 + (len(names) - 1) * number // max(1, count - 1) for number in range(count)]
    ends[-1] = len(names)
    return [tuple(names[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _with_named_layer(method: Method, model: nn.Module) -> Method:
    """The method with the name of its layer instead of the module: the copy has another module."""
    layer: Any = getattr(method, "layer", None) if takes_layer(method) else None
    if not isinstance(layer, nn.Module):
        return method
    return replace(method, layer=named_layer(model, layer)[0])  # type: ignore[call-arg]  # takes_layer checked it


def _targets(model: nn.Module, images: Tensor, target: Target, batch_size: int | None) -> Tensor:
    """The targets, or the classes that the trained model predicts."""
    targets = target_indices(target, len(images))
    if targets is not None:
        return targets
    with probing(model) as probe:
        parts = torch.split(images, rows_for(images, batch_size, model))
        return torch.cat([probe.predict(part) for part in parts]).cpu()


def _step(layers: Sequence[str], last: bool) -> str:
    """What a step randomises, for the table."""
    name = layers[-1] or "the model's own parameters"
    return f"all layers, down to {name}" if last else f"down to {name}"
