"""Scenarios: data with known ground truth. `names()` lists them; every module of this package is imported."""

from __future__ import annotations

from agop.registry import import_all
from agop.scenarios.base import Recipe, Scenario, Split, register, registry
from agop.scenarios.xai_tris_8x8 import xai_tris

import_all(__name__, __path__)


def names(benchmark: str | None = None, network: str | None = None) -> list[str]:
    """Names of all scenarios, or of one benchmark's with one network.

    By default it is the benchmark's first network; scenarios that don't name their network belong to it.
    """
    if benchmark is None:
        return registry.names()
    own = [scenario for scenario in map(get, registry.names()) if scenario.benchmark == benchmark]
    first = next((scenario.network_name for scenario in own), "")
    return [scenario.name for scenario in own if (scenario.network_name or first) == (network or first)]


def networks(benchmark: str) -> list[str]:
    """Short names of the networks of a benchmark."""
    own = (scenario for scenario in map(get, registry.names()) if scenario.benchmark == benchmark)
    return list(dict.fromkeys(scenario.network_name for scenario in own if scenario.network_name))


def get(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownNameError."""
    return registry.get(name)


__all__ = ["Recipe", "Scenario", "Split", "get", "names", "networks", "register", "xai_tris"]
