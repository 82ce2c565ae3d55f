"""Method: the base class of all methods. Job: what a method explains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, get_type_hints

import torch
from torch import Tensor

from agop.errors import InputError, PriorError
from agop.model.probe import Probe, at_least_float32
from agop.registry import Registry
from agop.statistic.agop import AGOP

# The paper's methods in its order, then ours, then controls.
FIRST = (
    "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
    "agop-local", "agop-weighted", "agop-global",
    "agop", "agop-patch", "agop-expected", "agop-subspace", "expected-gradients",
    "x", "sobel", "laplace", "activation-norm",
)  # fmt: skip
registry: Registry[type[Method]] = Registry("method", first=FIRST)


@dataclass(frozen=True)
class Job:
    """Images (N,C,H,W) to explain for targets (N,), or for the predicted classes if None.

    `rows` bounds the images per forward pass. `explain` sets the prior of a method with needs_prior, the probe of one
    with needs_model, and the references of one with needs_references.
    """

    images: Tensor
    targets: Tensor | None
    rows: int
    given_prior: AGOP | None = None
    given_probe: Probe | None = None
    given_references: Tensor | None = None

    @property
    def prior(self) -> AGOP:
        """The AGOP of the model."""
        if self.given_prior is None:
            raise PriorError("this method needs a prior: create one with agop.fit or `agop fit`, and pass prior=")
        return self.given_prior

    @property
    def probe(self) -> Probe:
        """The model in eval mode."""
        if self.given_probe is None:
            raise InputError("this method uses the model: set needs_model = True in its class")
        return self.given_probe

    @property
    def references(self) -> Tensor:
        """Other images (M,C,H,W), for example from the training data."""
        if self.given_references is None:
            raise InputError("this method needs reference images: pass references=")
        return self.given_references

    @property
    def classes(self) -> Tensor:
        """The targets (N,), or the predicted classes without any."""
        return self.probe.predict(self.images) if self.targets is None else self.targets

    def gradients(self) -> Tensor:
        """Gradients (N,C,H,W) of the target logits with respect to the images."""
        return self.probe.gradients(self.images, self.targets).values


@dataclass(frozen=True)
class Method(ABC):
    """Base class of methods: a frozen dataclass whose fields are its options.

    A subclass with a `name` is registered.
    """

    name: ClassVar[str]
    needs_prior: ClassVar[bool] = False
    # Optional attributes of the AGOP that the method needs: patch_matrix, sketch.
    prior_parts: ClassVar[tuple[str, ...]] = ()
    needs_references: ClassVar[bool] = False
    # A method with a layer uses the first one by default, not the last block, to which `evaluate(layer=)` refers.
    uses_first_layer: ClassVar[bool] = False
    # A method with a layer works without one, as for a model that has no feature maps.
    layer_is_optional: ClassVar[bool] = False
    # Without the model, a method gets all images at once, else at most `rows` of them.
    needs_model: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            registry.add(cls.name, cls)

    @abstractmethod
    def maps(self, job: Job) -> Tensor:
        """Maps (N,H,W), non-negative."""

    def factors(self, job: Job) -> dict[str, Tensor]:
        """The factors (N,H,W) whose product is the map, by name. Raises for a method whose maps aren't a product."""
        raise InputError(f"{self.name} has no factors: omit factors=True, or use the method agop")

    @classmethod
    def option_types(cls) -> dict[str, Any]:
        """Types of the options that METHOD:OPTION=VALUE can set, by name."""
        types = get_type_hints(cls)
        return {field.name: types[field.name] for field in fields(cls)}

    @classmethod
    def arguments(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the class for options by name."""
        return options

    def prepared(self, job: Job) -> Method:
        """The method after a one-time setup with the model, before the images come in parts."""
        return self


def product(factors: dict[str, Tensor]) -> Tensor:
    """The product (N,H,W) of all factors."""
    return torch.stack(list(factors.values())).prod(dim=0)


def mean_gradients(
    job: Job,
    points: int,
    point: Callable[[int, Tensor], Tensor],
    term: Callable[[int, Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Mean over k = 0 .. points-1 of the gradients (N,C,H,W) at point(k, images), or of term(k, images, gradients).

    As many points share a pass as `rows` allows, so memory doesn't grow with points or images.
    """
    probe = job.probe
    images, targets = probe.placed(job.images), job.targets
    targets = probe.predict(images) if targets is None else targets
    points_per_pass = max(1, job.rows // len(images))
    total = torch.zeros_like(images, dtype=at_least_float32(images.dtype))
    for ks in _runs(points, points_per_pass):
        batch = torch.cat([point(k, images) for k in ks])
        gradients = probe.gradients(batch, targets.repeat(len(ks))).values.reshape(len(ks), *images.shape)
        if term is None:
            total += gradients.sum(dim=0)
            continue
        for k, gradient in zip(ks, gradients.to(total.dtype), strict=True):
            total += term(k, images, gradient)
    return total / points


def _runs(count: int, length: int) -> Iterator[range]:
    for start in range(0, count, length):
        yield range(start, min(start + length, count))


def takes_layer(method: Method | type[Method]) -> bool:
    """True if the method has a `layer` option."""
    return any(field.name == "layer" for field in fields(method))


def missing_layer(method: Method, layer: Any) -> Any:
    """The layer for a method that takes one and has none, such as gradcam; None for the others."""
    takes = takes_layer(method) and not method.uses_first_layer
    return layer if takes and method.layer is None else None  # type: ignore[attr-defined]


def check_positive(method: Method, field: str, value: float) -> None:
    """Raise unless a method's option is positive."""
    if not value > 0:
        raise InputError(f"{method.name}: {field} is {value}: give a positive number")
