"""Figures for papers and notebooks. Needs matplotlib: pip install 'agop[plot]'."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agop.errors import MissingExtraError

if TYPE_CHECKING:
    from agop.plot.comparison import compare
    from agop.plot.convergence_curves import convergence
    from agop.plot.eigenvectors import eigenimages, filters
    from agop.plot.image_strip import show
    from agop.plot.overlays import overlay

__all__ = ["compare", "convergence", "eigenimages", "filters", "overlay", "show"]

# Imported on first use, so that agop works without matplotlib.
_MODULES = {
    "compare": "comparison",
    "convergence": "convergence_curves",
    "eigenimages": "eigenvectors",
    "filters": "eigenvectors",
    "overlay": "overlays",
    "show": "image_strip",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'agop.plot' has no attribute {name!r}")
    try:
        return getattr(import_module(f"agop.plot.{_MODULES[name]}"), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingExtraError("agop.plot", "matplotlib", "plot") from error


def __dir__() -> list[str]:
    return list(__all__)
