"""The methods, one file each: name → class. `names()` lists them; a new file here is found by itself."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agop.methods.base import Job, Method, registry
from agop.registry import import_all

import_all(__name__, __path__)


def names() -> list[str]:
    """The names of all methods: the paper's in its order, then the others."""
    return registry.names()


def get(name: str) -> type[Method]:
    """The class of the method of that name; LIBRARY:NAME is a library's own, by way of agop.interop.LIBRARY."""
    library, colon, own = str(name).partition(":")
    if colon and library.isidentifier() and name not in names() and find_spec(f"agop.interop.{library}"):
        method_class = getattr(import_module(f"agop.interop.{library}"), "method_class", None)
        if method_class is not None:
            return method_class(own)  # type: ignore[no-any-return]
    return registry.get(name)


def described(given: Iterable[str]) -> dict[str, str]:
    """What each of these methods shows, but for variants and controls: the first line of its docstring."""
    plain = (name for name in given if name in names() or (":" in name and "@" not in name))
    return {name: (get(name).__doc__ or name).strip().splitlines()[0] for name in plain}


globals().update({method.__name__: method for method in map(get, names())})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "described", "get", "names"]
