"""sanity(): do a method's maps depend on what the model has learned?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning, InputError
from agop.evaluating.rank_correlation import rank_correlation
from agop.evaluating.sanity_table import Sanity
from agop.explaining.explain import explain, resolve_method
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.model.layers import Layer, named_layer
from agop.model.probe import check_images, probing, rows_for, unwrapped
from agop.model.randomised import copied, layers_from_the_top, randomise
from agop.model.targets import PREDICTED, Target, target_indices
from agop.statistic.agop import AGOP
from agop.system.progress import track


def sanity(
    model: nn.Module,
    images: Tensor,
    method: str | Method = "agop",
    prior: AGOP | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    references: Tensor | None = None,
    steps: int | None = 8,
    seed: int = 0,
    output: str = PREDICTED,
) -> Sanity:
    """Rank correlations of a method's maps with those of the same model with random weights, from the top down.

    The sanity check of Adebayo et al.: a copy of the model loses the weights of its last layer, then of the layer
    before it as well, and so on, until all weights are random. There are at most `steps` steps, of several layers in a
    deep model; None: one per layer. The class explained is always that of the trained model. The prior is kept.
    With output="contrast", maps are made of gradients of the log-odds.
    """
    check_images(images)
    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}: give a positive number, or None for one step per layer")
    model = unwrapped(model)
    configured = _with_named_layer(resolve_method(method, layer), model)
    targets = _targets(model, images, target, batch_size)

    def maps_of(network: nn.Module) -> Tensor:
        return explain(
            network, images, configured, prior, targets, batch_size=batch_size, references=references, nan="skip",
            output=output,
        )  # fmt: skip

    trained = maps_of(model)
    names = layers_from_the_top(model, images[:1])
    if not names:
        raise InputError("the model has no parameters, so there is nothing to randomise")
    groups = _groups(names, steps)
    correlations, maps = [], trained
    for network in track(_cascade(model, groups, seed), "randomising", total=len(groups)):
        with warnings.catch_warnings():
            # The prior comes from other weights on purpose; other warnings were issued for the trained model.
            warnings.simplefilter("ignore", AGOPWarning)
            maps = maps_of(network)
        correlations.append(rank_correlation(trained, maps))
    name = method if isinstance(method, str) else configured.name
    return Sanity(name, tuple(groups), torch.stack(correlations), torch.equal(trained, maps), configured.needs_prior)


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
