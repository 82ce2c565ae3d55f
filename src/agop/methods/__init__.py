"""The methods, one file each: name → class. `names()` lists them; a new file here is found by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agop.errors import InputError, UnknownNameError
from agop.methods.base import Job, Method, registry
from agop.methods.own import load_user_method
from agop.registry import import_all, unknown_name_error

import_all(__name__, __path__)


def names() -> list[str]:
    """The names of all methods: the paper's in its order, then the others."""
    return registry.names()


def get(name: str) -> type[Method]:
    """The class of the method of that name; LIBRARY:NAME is a library's own, by way of agop.interop.LIBRARY, and
    package.module:NAME the user's: a class, or an object with its options.
    """
    found = _found(name)
    return found if isinstance(found, type) else type(found)


def create(name: str) -> Method:
    """The method of that name with its default options, or with those of the object that package.module:NAME names."""
    found = _found(name)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(
            f"{name} needs options ({error}): name an object that has them, mine = {found.__name__}(…)"
        ) from error


def is_own(name: str) -> bool:
    """True if the name is package.module:NAME, of the user's own."""
    module, _, own = str(name).partition(":")
    return bool(module and own) and name not in names() and _library(module) is None


def _found(name: str) -> type[Method] | Method:
    if name in names():
        return registry.get(name)
    library, colon, own = str(name).partition(":")
    method_class = _library(library) if colon else None
    if method_class is not None:
        return method_class(own)
    if library and own:
        return load_user_method(name)
    raise unknown_method_error(name, names())


def _library(name: str) -> Callable[[str], type[Method]] | None:
    """What gives a library's methods by name, if it has some."""
    if not name.isidentifier() or not find_spec(f"agop.interop.{name}"):
        return None
    return getattr(import_module(f"agop.interop.{name}"), "method_class", None)


def unknown_method_error(name: str, known: Sequence[str]) -> UnknownNameError:
    """The error for a name that no method carries."""
    return UnknownNameError(
        f"{unknown_name_error('method', name, known)}; one in a file of yours is package.module:CLASS"
    )


def descriptions(given: Iterable[str]) -> dict[str, str]:
    """What each of these methods shows, but for variants and controls: the first line of its docstring."""
    plain = (name for name in given if name in names() or (":" in name and "@" not in name))
    return {name: (get(name).__doc__ or name).strip().splitlines()[0] for name in plain}


globals().update({method.__name__: method for method in map(get, names())})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "create", "descriptions", "get", "names"]
