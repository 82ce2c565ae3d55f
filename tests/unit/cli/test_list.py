"""`agop list` reads sources instead of importing them."""

from dataclasses import fields

import agop
from agop.cli.plugin_sources import method_sources, metric_sources
from tests.command import run_checked, run_process


def own(registry, source):
    """The registry's names of agop's own plug-ins: other tests register theirs."""
    return [name for name in registry.names() if source(registry.get(name)).__module__.startswith("agop.")]


def test_methods_are_those_of_the_registry():
    names = own(agop.methods, lambda method: method)
    sources = method_sources()
    assert [source.name for source in sources] == names
    assert {source.name: source.description for source in sources} == agop.methods.descriptions(names)
    for source in sources:
        method = agop.methods.get(source.name)
        needs = {"model": method.needs_model, "prior": method.needs_prior, "references": method.needs_references}
        assert source.needs == tuple(word for word, needed in needs.items() if needed)
        assert [option.partition("=")[0] for option in source.options] == [field.name for field in fields(method)]
    options = {source.name: source.options for source in sources}
    assert options["smoothgrad"] == ("samples=50", "sigma=0.15", "seed=0")
    assert options["gradcam"] == ("layer=None",)  # of its base class


def test_metrics_are_those_of_the_registry():
    metrics = [agop.metrics.get(name) for name in own(agop.metrics, lambda metric: metric.function)]
    expected = [(metric.name, metric.__doc__.splitlines()[0], metric.higher_is_better) for metric in metrics]
    assert [(source.name, source.description, source.higher_is_better) for source in metric_sources()] == expected


def test_list_needs_no_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['agop', 'list']; from agop.cli.main import main; main()"
    )
    result = run_process(folder=tmp_path, before=("-c", code))
    assert result.returncode == 0, result.stderr
    for name in ("gradcam++", "average_precision", "xai-tris", "torchvision:NAME"):
        assert f"\n{name} " in result.stdout


def test_scenarios_are_listed_on_demand(tmp_path):
    output = run_checked("list", "--scenarios", folder=tmp_path).stdout
    assert all(f"{name} " in output for name in agop.scenarios.names())
