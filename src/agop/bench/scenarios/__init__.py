"""Scenarios: data with known ground truth. `names()` lists them."""

from agop.bench.scenarios import clevr_xai, composite  # noqa: F401  (they register their scenarios)
from agop.bench.scenarios.base import Recipe, Scenario, Split, register, registry
from agop.bench.scenarios.xai_tris import xai_tris


def names(benchmark: str | None = None, network: str | None = None) -> list[str]:
    """Names of all scenarios, or of one benchmark's with one network.

    Args:
        benchmark: Only scenarios of this benchmark: "xai-tris", "composite" …
        network: Only scenarios with this network; by default the benchmark's first one. Scenarios that don't name
            their network belong to the first one.

    Returns:
        The names, in order of registration.

    Example:
        >>> agop.bench.scenarios.names("xai-tris", "mlp")[0]
        'linear-mlp'
    """
    if benchmark is None:
        return registry.names()
    own = [scenario for scenario in map(get, registry.names()) if scenario.benchmark == benchmark]
    first = next((scenario.network_name for scenario in own), "")
    return [scenario.name for scenario in own if (scenario.network_name or first) == (network or first)]


def networks(benchmark: str) -> list[str]:
    """Short names of the networks of a benchmark.

    Args:
        benchmark: Name of the benchmark.

    Returns:
        The names, the benchmark's main network first.

    Example:
        >>> agop.bench.scenarios.networks("xai-tris")
        ['cnn', 'mlp', 'llr']
    """
    own = (scenario for scenario in map(get, registry.names()) if scenario.benchmark == benchmark)
    return list(dict.fromkeys(scenario.network_name for scenario in own if scenario.network_name))


def get(name: str) -> Scenario:
    """The scenario of a name.

    Args:
        name: One of `names()`.

    Returns:
        The scenario, with its default options.

    Raises:
        UnknownNameError: No scenario has this name.

    Example:
        >>> agop.bench.scenarios.get("composite").with_options({"size": 64})
    """
    return registry.get(name)


__all__ = ["Recipe", "Scenario", "Split", "get", "names", "networks", "register", "xai_tris"]
