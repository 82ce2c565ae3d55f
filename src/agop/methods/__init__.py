"""The methods, one file each: name → class. `names()` lists them; a new file here is found by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agop.methods.base import Job, Method, registry
from agop.registry import import_all

import_all(__name__, __path__)


def names() -> list[str]:
    """The names of all methods: the paper's in its order, then the others."""
    return registry.names()


def get(name: str) -> type[Method]:
    """The class of the method of that name."""
    return registry.get(name)


def described(given: Iterable[str]) -> dict[str, str]:
    """What each of these methods shows, as far as they are methods: the first line of its docstring."""
    return {name: (get(name).__doc__ or "").strip().splitlines()[0] for name in given if name in names()}


globals().update({method.__name__: method for method in map(get, names())})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "described", "get", "names"]
