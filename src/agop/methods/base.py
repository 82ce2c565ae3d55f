"""Method: the base class of all methods. Job: what a method explains. Methods by name, with options in the name."""

from __future__ import annotations

import ast
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional

from agop.errors import InputError, ModelError, PriorError, UnknownNameError
from agop.model.load import load_user_object
from agop.model.probe import Probe, at_least_float32, split_batch
from agop.prior.agop import AGOP
from agop.registry import Registry, unknown_name_error

# The paper's methods in its order, then ours, then controls.
FIRST = (
    "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
    "agop-local", "agop-weighted", "agop-global",
    "agop", "agop-layer", "agop-patch", "agop-expected", "agop-subspace", "agop-ixg", "expected-gradients",
    "input-x-gradient", "layercam", "normgrad",
    "input", "sobel", "laplace", "activation-norm",
)  # fmt: skip
registry: Registry[type[Method]] = Registry("method", first=FIRST)


@dataclass(frozen=True)
class Job:
    """Images (N,C,H,W) to explain for targets (N,), or for the predicted classes if None.

    For an output without classes, targets are the numbers of the images in the call of `explain`.
    `explain` makes the job: it sets the prior of a method with needs_prior, the probe of a method with needs_model, and
    the references of a method with needs_references.

    Args:
        images: Images (N,C,H,W).
        targets: Classes (N,), or None for the predicted ones.
        rows: The most images per forward pass.

    Example:
        def maps(self, job):  # of a Method
            return job.gradients().abs().sum(dim=1)
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

    def parts(self) -> Iterator[Job]:
        """The job in parts with at most `rows` images each."""
        for images, targets in split_batch(self.rows, self.images, self.targets):
            yield replace(self, images=images, targets=targets)


@dataclass(frozen=True)
class Method(ABC):
    """Base class of methods: a frozen dataclass whose fields are its options.

    A subclass with a `name` is registered. Class variables say what the method needs.

    Example:
        class Brightness(Method):
            name, needs_model = "brightness", False

            def maps(self, job):
                return job.images.abs().sum(dim=1)
    """

    name: ClassVar[str]
    needs_prior: ClassVar[bool] = False
    # Optional attributes of the AGOP that the method needs: patch_matrix, sketch.
    prior_parts: ClassVar[tuple[str, ...]] = ()
    needs_references: ClassVar[bool] = False
    # A method with needs_prior works without one for some models; it raises for the others.
    prior_is_optional: ClassVar[bool] = False
    # A method with a layer uses the first one by default, not the last block, to which `evaluate(layer=)` refers.
    uses_first_layer: ClassVar[bool] = False
    # A method with a layer works without one, as for a model that has no feature maps.
    layer_is_optional: ClassVar[bool] = False
    # Volumes (N,C,D,H,W) raise: the method needs images, or layers with 2-D maps.
    needs_images: ClassVar[bool] = False
    # Without the model, a method gets all images at once, else at most `rows` of them.
    needs_model: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            registry.add(cls.name, cls)

    @abstractmethod
    def maps(self, job: Job) -> Tensor:
        """Maps (N,H,W), non-negative."""

    def signed_maps(self, job: Job) -> Tensor:
        """Maps (N,H,W) with signs: positive where a pixel raises the output. Raises for a method without signs."""
        raise InputError(
            f"{self.name} has no signs: omit signed=True, or use vanilla, input-x-gradient, smoothgrad, agop-ixg, "
            "integrated-gradients, expected-gradients, or an attribution of Captum"
        )

    def factors(self, job: Job) -> dict[str, Tensor]:
        """The factors (N,H,W) whose product is the map, by name. Raises for a method whose maps aren't a product."""
        raise InputError(f"{self.name} has no factors: omit factors=True, or use the method agop")

    def combined(self, factors: dict[str, Tensor]) -> Tensor:
        """The maps (N,H,W) of their factors."""
        return torch.stack(list(factors.values())).prod(dim=0)

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


class SignedMethod(Method):
    """A method whose map is an attribution with signs, summed over channels as absolute values, or with signed=True."""

    @abstractmethod
    def attribution(self, job: Job) -> Tensor:
        """Signed attribution (N,C,H,W)."""

    def maps(self, job: Job) -> Tensor:
        return sum_channels(self.attribution(job))

    def signed_maps(self, job: Job) -> Tensor:
        return signed_sum(self.attribution(job))


def names() -> list[str]:
    """Names of all methods: the paper's in its order, then ours, then controls and a user's own.

    Returns:
        A list of names for `agop.explain`.

    Example:
        >>> agop.methods.names()[:2]
        ['random', 'vanilla']
    """
    return registry.names()


def get(name: str) -> type[Method]:
    """The method class of a name.

    Args:
        name: A name of `names()`. LIBRARY:NAME is a library's method, from agop.integrations.LIBRARY.
            package.module:NAME is the user's own: a class, or an object with its options.

    Returns:
        The class, whose class variables say what the method needs.

    Raises:
        UnknownNameError: If there is no such method.

    Example:
        >>> agop.methods.get("gradcam").needs_prior
        False
    """
    method = _resolve(split_options(name)[0])
    return method if isinstance(method, type) else type(method)


def create(name: str) -> Method:
    """The method object of a name, with the options in the name.

    Args:
        name: A name as for `get`, and options after a colon. Other options have their defaults, or the values of the
            user's object package.module:NAME.

    Returns:
        A frozen dataclass.

    Raises:
        UnknownNameError: If there is no such method or option.
        InputError: If an option has a wrong value.

    Example:
        >>> agop.methods.create("integrated-gradients:steps=200,baseline=0.5").steps
        200
    """
    base, texts = split_options(name)
    method = _resolve(base)
    try:
        return with_options(base, method, texts)
    except TypeError as error:
        raise InputError(f"{base} needs options ({error}): set them, {base}:OPTION=VALUE") from error


def runnable(prior: AGOP | None, *, with_references: bool = False) -> list[str]:
    """Names of the methods that can run with this prior, or without one."""
    return [name for name in names() if lacking(name, prior, with_references=with_references) is None]


def lacking(name: str, prior: AGOP | None, *, with_references: bool = False) -> str | None:
    """Why the method can't run with this prior, or without one; None for a method that can run."""
    method = get(name)
    from_prior = method.needs_references and not with_references
    if prior is None:
        return "there is no AGOP file" if method.needs_prior or from_prior else None
    missing = [part for part in method.prior_parts if getattr(prior, part) is None]
    if from_prior and prior.image_moments is None:
        missing.append("image_moments")
    return f"the prior has no {missing[0].replace('_', ' ')}" if missing else None


def descriptions(of: Iterable[str]) -> dict[str, str]:
    """The first docstring line of each of these methods, by name, without variants and controls."""
    plain = (name for name in of if name in registry.plugins or (":" in name and "@" not in name))
    return {name: (get(name).__doc__ or name).strip().splitlines()[0] for name in plain}


def is_own(name: str) -> bool:
    """True if the name is package.module:NAME of the user's own code, from which nothing is imported."""
    base, _ = split_options(name)
    module, _, own = base.partition(":")
    return bool(module and own) and base not in registry.plugins and _library(module) is None


def unknown_method_error(name: str, known: Sequence[str]) -> UnknownNameError:
    """The error for an unknown method name."""
    return UnknownNameError(
        f"{unknown_name_error('method', name, known)}; for your own method, give package.module:CLASS"
    )


def _resolve(name: str) -> type[Method] | Method:
    """The class, or the user's object, of a name without options."""
    known = registry.plugins
    if name in known:
        return known[name]
    library, colon, own = str(name).partition(":")
    # A method may have the name of the user's module that defines it.
    if library in known and known[library].__module__ != library:
        raise InputError(f"{own!r} isn't an option of {library}: give {library}:OPTION=VALUE")
    method_class = _library(library) if colon else None
    if method_class is not None:
        return method_class(own)
    if library and own:
        return _load_user_method(name)
    raise unknown_method_error(name, names())


def _library(name: str) -> Callable[[str], type[Method]] | None:
    """The function that returns a library's methods by name, if agop.integrations has one."""
    if not name.isidentifier() or not find_spec(f"agop.integrations.{name}"):
        return None
    return getattr(import_module(f"agop.integrations.{name}"), "method_class", None)


def _load_user_method(name: str) -> type[Method] | Method:
    """Resolve package.module:NAME to a Method class or object. Raises UnknownNameError or InputError."""

    def is_method(value: object) -> bool:
        return issubclass(value if isinstance(value, type) else type(value), Method)

    try:
        method = load_user_object(name, "method", lambda value: is_method(value) and value is not Method)
    except ModelError as error:
        raise UnknownNameError(f"no method is named {name!r}: {error}") from error
    if not is_method(method):
        raise InputError(
            f"{name} is a {type(method).__name__}: give a subclass of agop.methods.Method, or an object of one"
        )
    if getattr(method, "__abstractmethods__", ()):
        raise InputError(f"{name} has no maps: define maps(self, job)")
    if not hasattr(method, "name"):
        raise InputError(f"{name} has no name: add name = 'my-method' to its class")
    return method  # type: ignore[no-any-return]  # is_method


_OPTION = r"[A-Za-z_]\w*="


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """The name before its options, and the text of each option."""
    base, *options = re.split(rf":(?={_OPTION})", str(name), maxsplit=1)
    if not options:
        return base, {}
    # A comma inside a value, as in (1,3,3), isn't followed by another option.
    pairs = (text.partition("=") for text in re.split(rf",(?=\s*{_OPTION})", options[0]))
    return base, {option.strip(): value.strip() for option, _, value in pairs}


def with_options(name: str, method: type[Method] | Method, texts: Mapping[str, str]) -> Method:
    """The method with the options of a name. Raises InputError for unknown options and wrong values."""
    if not texts:
        return method() if isinstance(method, type) else method
    kind = method if isinstance(method, type) else type(method)
    known = kind.option_types()
    for option in texts:
        if not known:
            raise InputError(f"{name} has no options: remove :{option}=")
        if option not in known:
            raise unknown_name_error(f"option of {name}", option, list(known))
    arguments = kind.arguments({key: _value(f"{name}: {key}", text, known[key]) for key, text in texts.items()})
    if isinstance(method, type):
        return method(**arguments)
    mappings = {field: value for field, value in arguments.items() if isinstance(value, dict)}
    merged = {field: {**getattr(method, field), **value} for field, value in mappings.items()}
    return replace(method, **(arguments | merged))


# Type → what to give, and its reader. Those that accept every text come last.
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a number", float),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    type(None): ("none", lambda text: {"none": None}[text.lower()]),
    Any: ("a Python literal", ast.literal_eval),
    str: ("text", str),
}


def _value(what: str, text: str, kind: Any) -> Any:
    """The value of an option's text, in the first type of the union that can read it."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    kinds = (*kinds, str) if Any in kinds else kinds
    readers = [_READERS[each] for each in _READERS if each in kinds]
    readers = readers or [("a Python literal, or set it in Python", ast.literal_eval)]
    for _, read in readers:
        try:
            return read(text)
        except (ValueError, SyntaxError, KeyError):
            continue
    raise InputError(f"{what} is {text!r}: give {' or '.join(wanted for wanted, _ in readers)}")


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


def sum_channels(attribution: Tensor, weights: Tensor | None = None) -> Tensor:
    """Maps (N,H,W), non-negative: Σ_channels |attribution (N,C,H,W)|, with weights (C,H,W) or (N,C,H,W)."""
    values = attribution.abs().to(at_least_float32(attribution.dtype))
    if weights is None:
        return values.sum(dim=1)
    pattern = "nc...,c...->n..." if weights.ndim < values.ndim else "nc...,nc...->n..."
    return torch.einsum(pattern, values, weights.to(values.device, values.dtype))


def signed_sum(attribution: Tensor) -> Tensor:
    """Maps (N,H,W) with signs: Σ_channels attribution (N,C,H,W)."""
    return attribution.to(at_least_float32(attribution.dtype)).sum(dim=1)


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
    total = torch.zeros_like(images, dtype=at_least_float32(images.dtype))
    points_per_pass = max(1, job.rows // len(images))
    for start in range(0, points, points_per_pass):
        ks = range(points)[start : start + points_per_pass]
        batch = torch.cat([point(k, images) for k in ks])
        # Converted before the sum: float16 overflows.
        gradients = probe.gradients(batch, targets.repeat(len(ks))).values.to(total.dtype)
        gradients = gradients.reshape(len(ks), *images.shape)
        if term is None:
            total += gradients.sum(dim=0)
            continue
        for k, gradient in zip(ks, gradients, strict=True):
            total += term(k, images, gradient)
    return total / points


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Images (N,C,H,W) with each channel filtered by a kernel (3,3), edges mirrored as in scipy.ndimage."""
    images = images.to(at_least_float32(images.dtype))
    channels = images.shape[1]
    weights = kernel.to(images).expand(channels, 1, 3, 3)
    return functional.conv2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), weights, groups=channels)


_ACROSS = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])


def edges(images: Tensor) -> Tensor:
    """Edge strength (N,H,W) of images (N,C,H,W): the norm of the Sobel filter's gradient, summed over channels."""
    return torch.hypot(filtered(images, _ACROSS), filtered(images, _ACROSS.T)).sum(dim=1)
