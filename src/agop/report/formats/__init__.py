"""The formats a report can have, one file each. A new file here is found by itself."""

from __future__ import annotations

from collections.abc import Callable

from agop.registry import Registry, import_all
from agop.report.run import Run

Format = Callable[[Run], str]
registry: Registry[Format] = Registry("format")


def report_format(function: Format) -> Format:
    """Register a function from a run to the report's text, under its name."""
    registry.add(function.__name__, function)
    return function


import_all(__name__, __path__)
