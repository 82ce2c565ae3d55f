"""Explain image classifiers with the Average Gradient Outer Product."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agop import methods, metrics, networks, plot, scenarios
    from agop.errors import AGOPError, AGOPWarning
    from agop.evaluating import evaluate
    from agop.explaining import explain
    from agop.fitting import fit
    from agop.gradients import input_gradients
    from agop.interop.models import from_timm, from_torchvision, from_transformers
    from agop.merging import merge
    from agop.pictures import Preprocessing
    from agop.preparing import prepare
    from agop.statistic import AGOP
    from agop.training import AGOPTrainingHook

__all__ = [
    "AGOP", "AGOPError", "AGOPTrainingHook", "AGOPWarning", "Preprocessing", "evaluate", "explain", "fit",
    "from_timm", "from_torchvision", "from_transformers", "input_gradients", "merge", "methods", "metrics", "networks",
    "plot", "prepare", "scenarios",
]  # fmt: skip

# Imported on first use: what reads only files, and --help, should not wait for torch.
_HOMES = {
    "AGOP": "statistic", "AGOPError": "errors", "AGOPTrainingHook": "training", "AGOPWarning": "errors",
    "evaluate": "evaluating", "explain": "explaining", "fit": "fitting",
    "from_timm": "interop.models", "from_torchvision": "interop.models", "from_transformers": "interop.models",
    "input_gradients": "gradients", "merge": "merging", "prepare": "preparing",
    "Preprocessing": "pictures",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"agop.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"agop.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("agop")
    raise AttributeError(f"module 'agop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
