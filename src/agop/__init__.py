"""Explain image classifiers with the Average Gradient Outer Product."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agop import methods, metrics, plot
    from agop.auditing.audit import audit
    from agop.auditing.repair import repair
    from agop.auditing.suspect import suspect
    from agop.collect.fit import fit
    from agop.collect.hook import AGOPTrainingHook
    from agop.errors import AGOPError, AGOPWarning
    from agop.evaluation.evaluate import evaluate
    from agop.evaluation.grid import grid_pointing_game
    from agop.evaluation.sanity import sanity
    from agop.evaluation.select import select
    from agop.explanation import explain
    from agop.images.preprocessing import Preprocessing
    from agop.model import outputs
    from agop.model.load import load_model
    from agop.model.prepare import prepare
    from agop.model.probe import input_gradients
    from agop.prior.agop import AGOP
    from agop.prior.merge import merge

__all__ = [
    "AGOP", "AGOPError", "AGOPTrainingHook", "AGOPWarning", "Preprocessing", "audit", "evaluate", "explain", "fit",
    "grid_pointing_game", "input_gradients", "load_model", "merge", "methods", "metrics", "outputs", "plot", "prepare",
    "repair", "sanity", "select", "suspect",
]  # fmt: skip

# Imported on first use: --help and commands that only read files don't import torch.
_HOMES = {
    "AGOP": "prior.agop", "AGOPError": "errors", "AGOPTrainingHook": "collect.hook", "AGOPWarning": "errors",
    "audit": "auditing.audit", "evaluate": "evaluation.evaluate", "explain": "explanation", "fit": "collect.fit",
    "grid_pointing_game": "evaluation.grid", "input_gradients": "model.probe", "load_model": "model.load",
    "merge": "prior.merge", "prepare": "model.prepare", "Preprocessing": "images.preprocessing",
    "repair": "auditing.repair", "sanity": "evaluation.sanity", "select": "evaluation.select",
    "suspect": "auditing.suspect",
}  # fmt: skip
# Reached as agop.bench.CNN8by8, agop.integrations.from_timm.
_PACKAGES = {"bench": "bench", "integrations": "integrations", "outputs": "model.outputs"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"agop.{_HOMES[name]}"), name)
    if name in __all__ or name in _PACKAGES:
        try:
            return import_module(f"agop.{_PACKAGES.get(name, name)}")
        except ModuleNotFoundError as error:
            if name != "plot" or (error.name or "").partition(".")[0] != "matplotlib":
                raise
            from agop.errors import MissingExtraError

            raise MissingExtraError("agop.plot", "matplotlib", "plot") from error
    if name == "__version__":
        return import_module("agop.io").package_version()
    raise AttributeError(f"module 'agop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
