"""Interventions by name, one file each. A new file here is registered automatically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agop.interventions.base import Intervention, registry
from agop.registry import import_all

import_all(__name__, __path__)


def names() -> list[str]:
    """Names of all interventions."""
    return registry.names()


def get(name: str) -> type[Intervention]:
    """The intervention class of a name."""
    return registry.get(name)


globals().update({kind.__name__: kind for kind in map(get, names())})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Intervention", "get", "names"]
