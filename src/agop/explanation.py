"""explain(): runs a method, by name or configured, on a batch of images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor, nn

from agop import methods
from agop.errors import GradientError, InputError, PriorError, warn
from agop.methods import AGOPMethod, Job, Method
from agop.methods.base import takes_layer
from agop.model.layers import Layer
from agop.model.outputs import Forward, Output, OutputLike, Target, check_range, logit, output_for
from agop.model.probe import check_images, probing, rows_for
from agop.model.state import without_autocast
from agop.prior.agop import AGOP

Methods = str | Method | Sequence[str | Method]
# Values above this multiple of the other images' largest value, and of 1, are of another range, as 0..255 beside 0..1.
_OTHER_RANGE = 64
# Fewer maps may be alike by chance. On solar cells, maps of one pixel had a correlation of 1, useful ones of .5.
_FEW, _MANY, _ALIKE = 8, 100, 0.9


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
    output: OutputLike = ...,
    forward: Forward | None = ...,
    signed: bool = ...,
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
    output: OutputLike = ...,
    forward: Forward | None = ...,
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
    output: OutputLike = logit,
    forward: Forward | None = None,
    factors: bool = False,
    signed: bool = False,
) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
    """Maps (N,H,W) of images (N,C,H,W), on the images' device: non-negative, unless `signed`.

    Args:
        model: A torch.nn.Module. It is left exactly as it was.
        images: Images (N,C,H,W), prepared as for the model; for methods of gradients also volumes (N,C,D,H,W).
        method: A name of `agop.methods.names()`, also with options, or an agop.methods object.
        prior: The AGOP of the model, for methods that need one. `agop` needs one for networks with small feature maps.
        target: A class, one class per image, or None for the predicted class.
        layer: Layer for methods that use feature maps, by name or module.
        batch_size: The most images per forward pass. It bounds the memory and doesn't change the maps.
        references: Other images (M,C,H,W), for example from the training data, for methods that start from them; by
            default those of the prior.
        nan: "raise", or "skip": an image whose map isn't finite gets a map of NaN and a warning.
        output: What is explained: "logit" of the target, "log_odds" (the logit minus the log-sum-exp of the others),
            "probability", one of `agop.outputs`, or a function from what the model returns to one number per image.
        forward: A function from model and images to what the model returns, for models with further inputs.
        factors: Return the factors as well, for a method whose maps are made of factors, such as `agop`.
        signed: Keep signs: a map is the sum of an attribution over channels, positive where a pixel raises the output.
            For methods with such an attribution.

    Returns:
        The maps; with factors=True, the maps and a dict of their factors (N,H,W) by name.

    Raises:
        InputError: For wrong arguments.
        PriorError: If the prior is missing or doesn't fit.
        GradientError: If a map isn't finite, unless nan="skip".

    Example:
        maps = agop.explain(model, images)  # a network for photographs
        maps = agop.explain(model, images, prior=agop.fit(model, loader))  # any network
    """
    check_images(images, volumes=True)
    output, method = output_for(output, forward), resolve_method(method, layer)
    targets = output.targets(target, len(images))
    if nan not in ("raise", "skip"):
        raise InputError(f"nan is {nan!r}: give 'raise' or 'skip'")
    check_type(prior)
    without_prior = prior is None and method.prior_is_optional
    if method.needs_prior and not without_prior:
        _check_prior(method, prior, model, images, targets, output)
    if method.needs_references and not (without_prior and references is None):
        references = references_for(method.name, references, prior, images)
    if images.ndim > 4 and method.needs_images:
        raise InputError(
            f"{method.name} is for images (N,C,H,W), these are volumes {tuple(images.shape)}: use a method of "
            "gradients, such as integrated-gradients, expected-gradients or agop-weighted"
        )
    if factors and signed:
        raise InputError("factors have no signs: pass factors=True or signed=True")
    job = Job(images, targets, rows_for(images, batch_size, model), prior, given_references=references)
    if not method.needs_model and not factors:
        with without_autocast([images]):
            own = method.signed_maps(job) if signed else method.maps(job)
            return _check_finite(_check_maps(method, own, images, signed), nan, output)
    with probing(model, output) as probe:
        job = replace(job, given_probe=probe)
        method = method.prepared(job)
        if factors:
            by_part = [method.factors(part) for part in job.parts()]
            by_name = {name: torch.cat([part[name] for part in by_part]).to(images.device) for name in by_part[0]}
            return _check_finite(method.combined(by_name), nan, output), by_name
        compute = method.signed_maps if signed else method.maps
        parts = [_check_maps(method, compute(part), part.images, signed) for part in job.parts()]
    maps = parts[0] if len(parts) == 1 else torch.cat(parts)
    if isinstance(method, AGOPMethod) and prior is not None:
        _warn_if_alike(maps[:_MANY], images[:_MANY])
    return _check_finite(maps, nan, output)


def _warn_if_alike(maps: Tensor, images: Tensor) -> None:
    """Warn if the maps of different images hardly differ: the prior decides them, not the image."""
    if len(maps) < _FEW or all(torch.equal(image, images[0]) for image in images[1:]):
        return
    correlation = float(torch.corrcoef(maps.flatten(1).float()).nanmean())
    if correlation > _ALIKE:
        warn(
            f"the maps of these {len(maps)} images hardly differ (mean correlation {correlation:.2f}): right if what "
            "decides is at the same place in all images; else use the method agop:where=0, which leaves the prior's "
            "diagonal out"
        )


def _check_maps(method: Method, maps: Any, images: Tensor, signed: bool) -> Tensor:
    """The maps on the images' device. Raises unless they are a tensor (N,H,W), non-negative unless signed."""
    shape = (len(images), *images.shape[2:])
    valid = isinstance(maps, Tensor) and maps.shape == shape
    if valid:
        distinct = maps[:1] if maps.stride(0) == 0 else maps  # one map for all images, as of agop-global
        valid = signed or not bool((distinct < 0).any())
    if not valid:
        result = f"a {type(maps).__name__}"
        if isinstance(maps, Tensor):
            result = f"shape {tuple(maps.shape)} with minimum {float(maps.min()):.3g}"
        raise InputError(f"{method.name} returned {result}: its maps() must return a non-negative tensor {shape}")
    return maps.to(images.device)  # type: ignore[no-any-return]  # a tensor


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


def methods_by_name(methods: Methods) -> dict[str, Method]:
    """Configured methods by name. Raises before the first one runs."""
    by_name: dict[str, Method] = {}
    for item in [methods] if isinstance(methods, (str, Method)) else methods:
        method = resolve_method(item)
        name = item if isinstance(item, str) else method.name
        if name in by_name:
            raise InputError(f"{name} appears twice among the methods: compare two configurations in two calls")
        by_name[name] = method
    if not by_name:
        raise InputError("there are no methods to compare: name at least one, or omit methods=")
    return by_name


def check_type(prior: object) -> None:
    """Raise unless the prior is an AGOP or None."""
    if prior is not None and not isinstance(prior, AGOP):
        raise PriorError(f"prior is a {type(prior).__name__}: give an agop.AGOP, for example agop.AGOP.load(path)")


def _check_prior(
    method: Method, prior: AGOP | None, model: nn.Module, images: Tensor, targets: Tensor | None, output: Output
) -> None:
    if prior is None:
        raise PriorError(
            f"{method.name} needs a prior: create one with agop.fit or `agop fit`, and pass prior= or --prior"
        )
    prior.check(model, images)
    provenance = prior.provenance
    if provenance.at_chance:
        # Without training, a map can look like that of a trained model: it shows what is bright in the image.
        warn(
            f"the model classified {provenance.accuracy:.0%} of the prior's images correctly, about as by chance with "
            f"{provenance.classes} classes: it has learned nothing to show. Maps show what stands out in the "
            "image; check the weights and the preprocessing, or train longer"
        )
    if provenance.output != output.name:
        warn(
            f"the prior has gradients of output={provenance.output!r}, the maps are for output={output.name!r}: pass "
            "the same output to fit and explain"
        )
    if output.has_classes and targets is not None and provenance.classes is not None:
        check_range(targets, provenance.classes, "target")


def _check_finite(maps: Tensor, nan: str, output: Output) -> Tensor:
    """The maps. If one isn't finite: raise, or warn and set it to NaN."""
    if maps.stride(0) == 0 and bool(maps[0].isfinite().all()):  # one map for all images, as of agop-global
        return maps
    broken = (~maps.flatten(1).isfinite().all(dim=1)).nonzero().flatten().tolist()
    if not broken:
        return maps
    samples = ", ".join(map(str, broken[:5])) + (" …" if len(broken) > 5 else "")
    found = f"NaN or infinite gradients of {output.name} for sample {samples} ({len(broken)} of {len(maps)})"
    if nan == "raise":
        raise GradientError(
            f"{found}: check these images and the model's weights, or pass nan='skip' to get maps of NaN for them"
        )
    warn(f"{found}: their maps are NaN")
    maps[broken] = torch.nan
    return maps


def references_for(name: str, references: Tensor | None, prior: AGOP | None, images: Tensor) -> Tensor:
    """Reference images (M,C,H,W) of the method for these images: the references, else those of the prior."""
    if references is not None:
        _check_references(references, images)
        return references
    if prior is None or prior.reference_images is None:
        raise InputError(
            f"{name} needs reference images: pass references= with images (M,C,H,W), for example from the training "
            "data, or --references FOLDER on the command line; or pass a prior with image moments, as agop.fit makes"
        )
    prior.check_shape(images)
    return prior.reference_images.to(images)


def _check_references(references: Any, images: Tensor) -> None:
    """Raise unless the references are at least one image of the images' shape, finite, and not of another range."""
    if not isinstance(references, Tensor):
        raise InputError(f"references are a {type(references).__name__}: give a torch tensor (M,C,H,W)")
    shape, expected = tuple(references.shape), tuple(images.shape[1:])
    if references.ndim != images.ndim or not len(references) or shape[1:] != expected:
        raise InputError(f"references have shape {shape}, images {tuple(images.shape)}: give (M, {str(expected)[1:]}")
    if not references.is_floating_point():
        raise InputError(f"references are {references.dtype}, images {images.dtype}: convert and scale them alike")
    if not bool(references.isfinite().all()):
        raise InputError("references contain NaN or infinite values: remove these images")
    ours, theirs = (float(values.nan_to_num(0, 0, 0).abs().max()) for values in (references, images))
    if max(ours, theirs) > _OTHER_RANGE * max(1.0, min(ours, theirs)):
        raise InputError(
            f"references have values up to {ours:g}, images up to {theirs:g}: convert and scale them alike"
        )
