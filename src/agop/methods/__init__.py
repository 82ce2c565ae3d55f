"""The methods, one file each: name → class. `names()` lists them; a new file here is found by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agop.methods.base import Job, Method, registry
from agop.registry import import_all

import_all(__name__, __path__)

_ORDER = (
    "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
    "agop-local", "agop-weighted", "agop-global",
)  # fmt: skip


def names() -> list[str]:
    """The names of all methods: the paper's in its order, then the others."""
    known = registry.names()
    return [n for n in _ORDER if n in known] + [n for n in known if n not in _ORDER]


def get(name: str) -> type[Method]:
    """The class of the method of that name."""
    return registry.get(name)


globals().update({method.__name__: method for method in map(get, names())})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "get", "names"]
