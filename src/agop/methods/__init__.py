"""Methods by name. A class in one of the modules imported here registers itself."""

from typing import TYPE_CHECKING, Any

from agop.methods import agop, cam, controls, gradients  # noqa: F401  (they register their classes)
from agop.methods.base import Job, Method, create, descriptions, get, is_own, lacking, names, registry, runnable

globals().update({method.__name__: method for method in registry.plugins.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Job", "Method", "create", "descriptions", "get", "is_own", "lacking", "names", "registry", "runnable"]
