"""Metrics by name, one file each. A new file here is registered automatically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agop.metrics.base import Metric, metric, registry
from agop.registry import import_all

import_all(__name__, __path__)


def names() -> list[str]:
    """Names of all metrics: the paper's in its order, then the others."""
    return registry.names()


def default_names() -> list[str]:
    """Names of the metrics that need no optional dependency."""
    return [name for name in names() if get(name).extra is None]


def get(name: str) -> Metric:
    """The metric of that name."""
    return registry.get(name)


globals().update({name: get(name) for name in names()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Metric", "default_names", "get", "metric", "names"]
