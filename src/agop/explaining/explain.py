"""explain(): runs a method, by name or configured, on a batch of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor, nn

from agop import methods
from agop.errors import GradientError, InputError, PriorError, warn
from agop.explaining.references import references_for
from agop.methods import Job, Method
from agop.methods.base import product, takes_layer
from agop.model.layers import Layer
from agop.model.probe import check_images, probing, rows_for
from agop.model.targets import Target, check_output, check_range, target_indices
from agop.statistic.agop import AGOP


@overload
def explain(
    model: nn.Module,
    images: Tensor,
    method: str | Method = ...,
    prior: AGOP | None = ...,
    target: Target = ...,
    layer: Layer = ...,
    batch_size: int | None = ...,
    *,
    references: Tensor | None = ...,
    nan: str = ...,
    output: str = ...,
) -> Tensor: ...
@overload
def explain(
    model: nn.Module,
    images: Tensor,
    method: str | Method = ...,
    prior: AGOP | None = ...,
    target: Target = ...,
    layer: Layer = ...,
    batch_size: int | None = ...,
    *,
    factors: bool,
    references: Tensor | None = ...,
    nan: str = ...,
    output: str = ...,
) -> tuple[Tensor, dict[str, Tensor]]: ...
def explain(
    model: nn.Module,
    images: Tensor,
    method: str | Method = "agop",
    prior: AGOP | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    references: Tensor | None = None,
    nan: str = "raise",
    output: str = "predicted",
    factors: bool = False,
) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
    """Maps (N,H,W), non-negative, of images (N,C,H,W), on the images' device.

    `target` is a class, one class per image, or None for the predicted class. `layer` is for methods that use a layer's
    feature maps. `batch_size` bounds the images per forward pass, and so the memory. `references` (M,C,H,W) are other
    images, for example from the training data, for methods that start from them; by default those of the prior. With
    nan="skip", an image whose map isn't finite gets a map of NaN and a warning. With output="contrast", gradients are
    those of the target's log-odds, its logit minus the log-sum-exp of the others, instead of its logit. With
    factors=True, the result is the maps and a dict of their factors (N,H,W), for a method whose maps are a product,
    such as `agop`.
    """
    check_images(images)
    check_output(output)
    method = resolve_method(method, layer)
    targets = target_indices(target, len(images))
    if nan not in ("raise", "skip"):
        raise InputError(f"nan is {nan!r}: give 'raise' or 'skip'")
    if prior is not None and not isinstance(prior, AGOP):
        raise PriorError(f"prior is a {type(prior).__name__}: give an agop.AGOP, for example agop.AGOP.load(path)")
    if method.needs_prior:
        _check_prior(method, prior, model, images, targets, output)
    if method.needs_references:
        references = references_for(method.name, references, prior, images)
    job = Job(images, targets, rows_for(images, batch_size, model), prior, given_references=references)
    if not method.needs_model and not factors:
        return _check_maps(method, method.maps(job), images)
    with probing(model, output) as probe:
        job = replace(job, given_probe=probe)
        method = method.prepared(job)
        if factors:
            by_part = [method.factors(part) for part in _parts(job)]
            by_name = {name: torch.cat([part[name] for part in by_part]).to(images.device) for name in by_part[0]}
            return _check_finite(product(by_name), nan), by_name
        maps = [_check_maps(method, method.maps(part), part.images) for part in _parts(job)]
    return _check_finite(maps[0] if len(maps) == 1 else torch.cat(maps), nan)


def _parts(job: Job) -> Iterator[Job]:
    """The job in parts with at most `rows` images each."""
    images = torch.split(job.images, job.rows)
    targets = [None] * len(images) if job.targets is None else torch.split(job.targets, job.rows)
    for part, target in zip(images, targets, strict=True):
        yield replace(job, images=part, targets=target)


def _check_maps(method: Method, maps: Any, images: Tensor) -> Tensor:
    """The maps on the images' device. Raises unless they are a non-negative tensor (N,H,W)."""
    shape = (len(images), *images.shape[2:])
    if not isinstance(maps, Tensor) or maps.shape != shape or bool((_distinct(maps) < 0).any()):
        result = f"a {type(maps).__name__}"
        if isinstance(maps, Tensor):
            result = f"shape {tuple(maps.shape)} with minimum {float(maps.min()):.3g}"
        raise InputError(f"{method.name} returned {result}: its maps() must return a non-negative tensor {shape}")
    return maps.to(images.device)


def _distinct(maps: Tensor) -> Tensor:
    """The first map (1,H,W) if all of them share its memory, else the maps."""
    return maps[:1] if maps.stride(0) == 0 else maps


def resolve_method(method: Any, layer: Layer = None) -> Method:
    """The method object of a name, class or object, with the layer if there is one."""
    if isinstance(method, str):
        method = methods.create(method)
    elif isinstance(method, type) and issubclass(method, Method):
        method = method()
    if not isinstance(method, Method):
        raise InputError(f"method is a {type(method).__name__}: give a name or an agop.methods object")
    if not hasattr(method, "name"):
        raise InputError(f"{type(method).__name__} has no name: add name = 'my-method' to its class")
    if layer is None:
        return method
    if not takes_layer(method):
        raise InputError(f"layer= is for gradcam and gradcam++, not for {method.name}: omit it")
    return replace(method, layer=layer)  # type: ignore[call-arg]  # takes_layer checked the field


def _check_prior(
    method: Method, prior: AGOP | None, model: nn.Module, images: Tensor, targets: Tensor | None, output: str
) -> None:
    if prior is None:
        raise PriorError(
            f"{method.name} needs a prior: create one with agop.fit or `agop fit`, and pass prior= or --prior"
        )
    prior.check(model, images)
    _warn_if_at_chance(prior)
    if prior.provenance.output != output:
        warn(
            f"the prior has gradients of output={prior.provenance.output!r}, the maps are for output={output!r}: pass "
            "the same output to fit and explain"
        )
    if targets is not None and prior.provenance.classes is not None:
        check_range(targets, prior.provenance.classes, "target")


def _warn_if_at_chance(prior: AGOP) -> None:
    """Without training, a map can look like that of a trained model: it shows what is bright in the image."""
    provenance = prior.provenance
    if provenance.at_chance:
        warn(
            f"the model classified {provenance.accuracy:.0%} of the prior's images correctly, about as by chance with "
            f"{provenance.classes} classes: it has learned nothing to show. Maps of agop are even, those of "
            "other methods show what stands out in the image; check the weights and the preprocessing, or train longer"
        )


def _check_finite(maps: Tensor, nan: str) -> Tensor:
    """The maps. If one isn't finite: raise, or warn and set it to NaN."""
    broken = (~maps.flatten(1).isfinite().all(dim=1)).nonzero().flatten().tolist()
    if not broken:
        return maps
    samples = ", ".join(map(str, broken[:5])) + (" …" if len(broken) > 5 else "")
    if nan == "raise":
        raise GradientError(
            f"NaN or infinite gradients for sample {samples} ({len(broken)} of {len(maps)}): check these "
            "images and the model's weights, or pass nan='skip' to get maps of NaN for them"
        )
    warn(f"NaN or infinite gradients for sample {samples} ({len(broken)} of {len(maps)}): their maps are NaN")
    maps[broken] = torch.nan
    return maps
