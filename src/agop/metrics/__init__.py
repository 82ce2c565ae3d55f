"""Metrics by name. A function with `@metric` in one of the modules imported here registers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agop.metrics import faithfulness, localisation  # noqa: F401  (they register their metrics)
from agop.metrics.base import Metric, metric, registry


def names() -> list[str]:
    """Names of all metrics: the paper's in its order, then the others.

    Returns:
        A list of names for `agop.evaluate`.

    Example:
        >>> agop.metrics.names()[0]
        'pointing_game'
    """
    return registry.names()


def default_names() -> list[str]:
    """Names of the metrics that need no optional dependency."""
    return [name for name in names() if get(name).extra is None]


def get(name: str) -> Metric:
    """The metric of that name.

    Args:
        name: A name of `names()`, or the heading of its column in a table: "AP".

    Returns:
        A `Metric`, which is called as the function.

    Raises:
        UnknownNameError: If there is no such metric.

    Example:
        >>> agop.metrics.get("deletion").higher_is_better
        False
    """
    headings = {metric.label.lower(): metric.name for metric in registry.plugins.values()}
    return registry.get(headings.get(str(name).lower(), name))


globals().update({name: get(name) for name in names()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["Metric", "default_names", "get", "metric", "names"]
