"""Figures for papers and notebooks; they need matplotlib: pip install 'agop[plot]'."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agop.errors import AGOPError

if TYPE_CHECKING:
    from agop.plot.comparing import compare
    from agop.plot.converging import convergence
    from agop.plot.image_strip import show
    from agop.plot.overlaying import overlay

__all__ = ["compare", "convergence", "overlay", "show"]

# Imported on first use: whoever draws nothing needs no matplotlib.
_HOMES = {"compare": "comparing", "convergence": "converging", "overlay": "overlaying", "show": "image_strip"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agop.plot' has no attribute {name!r}")
    try:
        return getattr(import_module(f"agop.plot.{_HOMES[name]}"), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise AGOPError("agop.plot needs matplotlib: pip install 'agop[plot]'") from error


def __dir__() -> list[str]:
    return list(__all__)
