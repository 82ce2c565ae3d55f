"""Scenarios: data with known ground truth. `names()` lists them; every module of this package is imported."""

from __future__ import annotations

from agop.registry import import_all
from agop.scenarios.base import Recipe, Scenario, Split, register, registry
from agop.scenarios.xai_tris_8x8 import xai_tris

import_all(__name__, __path__)


def names(benchmark: str | None = None, network: str | None = None) -> list[str]:
    """Names of all scenarios, or of one benchmark's with one network, by default its first network."""
    if benchmark is None:
        return registry.names()
    own = [scenario for scenario in map(get, registry.names()) if scenario.benchmark == benchmark]
    selected = network or next((scenario.network_name for scenario in own), None)
    return [scenario.name for scenario in own if scenario.network_name == selected]


def get(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownNameError."""
    return registry.get(name)


__all__ = ["Recipe", "Scenario", "Split", "get", "names", "register", "xai_tris"]
