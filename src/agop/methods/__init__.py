"""Methods by name, one file each. A new file here is registered automatically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agop.errors import InputError, UnknownNameError
from agop.methods.base import Job, Method, registry
from agop.methods.options import split_options, with_options
from agop.methods.own import load_user_method
from agop.registry import import_all, unknown_name_error

import_all(__name__, __path__)


def names() -> list[str]:
    """Names of all methods: the paper's in its order, then ours, then controls and a user's own."""
    return registry.names()


def runnable(prior: AGOP | None, *, with_references: bool = False) -> list[str]:
    """Names of the methods that can run with this prior, or without one, and with or without reference images."""
    return [name for name in names() if lacking(name, prior, with_references=with_references) is None]


def lacking(name: str, prior: AGOP | None, *, with_references: bool = False) -> str | None:
    """Why the method can't run with this prior, or without one, if there is a reason."""
    method = get(name)
    from_prior = method.needs_references and not with_references
    if prior is None:
        return "there is no AGOP file" if method.needs_prior or from_prior else None
    missing = [part for part in method.prior_parts if getattr(prior, part) is None]
    if from_prior and not prior.has_references:
        missing.append("image_moments")
    return f"the prior has no {missing[0].replace('_', ' ')}" if missing else None


def get(name: str) -> type[Method]:
    """The method class of a name.

    LIBRARY:NAME is a library's method from agop.interop.LIBRARY. package.module:NAME is the user's own: a class, or an
    object with its options.
    """
    method = _resolve(split_options(name)[0])
    return method if isinstance(method, type) else type(method)


def create(name: str) -> Method:
    """The method object of a name, with the options in the name: `integrated-gradients:steps=200,baseline=0.5`.

    Other options have their defaults, or the values of the user's object package.module:NAME.
    """
    base, texts = split_options(name)
    method = _resolve(base)
    try:
        return with_options(base, method, texts)
    except TypeError as error:
        raise InputError(f"{base} needs options ({error}): set them, {base}:OPTION=VALUE") from error


def is_own(name: str) -> bool:
    """True if the name is package.module:NAME of the user's own code."""
    base, _ = split_options(name)
    module, _, own = base.partition(":")
    return bool(module and own) and base not in names() and _library(module) is None


def _resolve(name: str) -> type[Method] | Method:
    """The class, or the user's object, of a name without options."""
    if name in names():
        return registry.get(name)
    library, colon, own = str(name).partition(":")
    # A method may have the name of the user's module that defines it.
    if library in names() and registry.get(library).__module__ != library:
        raise InputError(f"{own!r} isn't an option of {library}: give {library}:OPTION=VALUE")
    method_class = _library(library) if colon else None
    if method_class is not None:
        return method_class(own)
    if library and own:
        return load_user_method(name)
    raise unknown_method_error(name, names())


def _library(name: str) -> Callable[[str], type[Method]] | None:
    """The function that returns a library's methods by name, if agop.interop has one."""
    if not name.isidentifier() or not find_spec(f"agop.interop.{name}"):
        return None
    return getattr(import_module(f"agop.interop.{name}"), "method_class", None)


def unknown_method_error(name: str, known: Sequence[str]) -> UnknownNameError:
    """The error for an unknown method name."""
    return UnknownNameError(
        f"{unknown_name_error('method', name, known)}; for your own method, give package.module:CLASS"
    )


def descriptions(of: Iterable[str]) -> dict[str, str]:
    """The first docstring line of each of these methods, without variants and controls."""
    plain = (name for name in of if name in names() or (":" in name and "@" not in name))
    return {name: (get(name).__doc__ or name).strip().splitlines()[0] for name in plain}


globals().update({method.__name__: method for method in map(get, names())})

if TYPE_CHECKING:
    from agop.statistic.agop import AGOP

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "create", "descriptions", "get", "names", "runnable"]
