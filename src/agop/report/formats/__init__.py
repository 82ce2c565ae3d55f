"""Report formats, one file each. A new file registers itself."""

from __future__ import annotations

from collections.abc import Callable

from agop.registry import Registry, import_all
from agop.report.run import Run

Format = Callable[[Run], str]
registry: Registry[Format] = Registry("format")


def report_format(function: Format) -> Format:
    """Register a function Run → text as a report format, under the function's name."""
    registry.add(function.__name__, function)
    return function


import_all(__name__, __path__)
