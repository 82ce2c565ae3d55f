"""Explain image classifiers with the Average Gradient Outer Product."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agop import interventions, methods, metrics, networks, plot, scenarios
    from agop.auditing.audit import audit
    from agop.auditing.selecting import select
    from agop.errors import AGOPError, AGOPWarning
    from agop.evaluating.evaluate import evaluate
    from agop.evaluating.grid import grid_pointing_game
    from agop.evaluating.sanity import sanity
    from agop.explaining.explain import explain
    from agop.interop.models import from_timm, from_torchvision, from_transformers
    from agop.model.preparing import prepare
    from agop.model.probe import input_gradients
    from agop.pictures.preprocessing import Preprocessing
    from agop.statistic.agop import AGOP
    from agop.statistic.fitting import fit
    from agop.statistic.hook import AGOPTrainingHook
    from agop.statistic.merging import merge

__all__ = [
    "AGOP", "AGOPError", "AGOPTrainingHook", "AGOPWarning", "Preprocessing", "audit", "evaluate", "explain",
    "fit", "from_timm", "from_torchvision", "from_transformers", "grid_pointing_game", "input_gradients",
    "interventions", "merge", "methods", "metrics", "networks", "plot", "prepare", "sanity", "scenarios",
    "select",
]  # fmt: skip

# Imported on first use: --help and commands that only read files don't import torch.
_HOMES = {
    "AGOP": "statistic.agop", "AGOPError": "errors", "AGOPTrainingHook": "statistic.hook", "AGOPWarning": "errors",
    "audit": "auditing.audit", "evaluate": "evaluating.evaluate", "explain": "explaining.explain",
    "fit": "statistic.fitting", "from_timm": "interop.models", "from_torchvision": "interop.models",
    "from_transformers": "interop.models", "grid_pointing_game": "evaluating.grid", "input_gradients": "model.probe",
    "merge": "statistic.merging", "prepare": "model.preparing", "Preprocessing": "pictures.preprocessing",
    "sanity": "evaluating.sanity", "select": "auditing.selecting",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"agop.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"agop.{name}")
    if name == "__version__":
        return import_module("agop.system.versions").package_version()
    raise AttributeError(f"module 'agop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
