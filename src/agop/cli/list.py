"""`agop list`: available methods, metrics, scenarios and models."""

from __future__ import annotations

from dataclasses import fields

from rich.console import Console
from rich.table import Table


def list_() -> None:
    """List the methods with their options, the metrics, the scenarios, and how to name a model."""
    from agop import methods, metrics, scenarios
    from agop.model.loading import FORMS

    console = Console(highlight=False)
    method_table = _table("method", "needs", "description", "options")
    descriptions = methods.descriptions(methods.names())
    for name in methods.names():
        method = methods.get(name)
        options = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        needs = [word for word, needed in (("model", method.needs_model), ("prior", method.needs_prior)) if needed]
        method_table.add_row(name, ", ".join(needs) or "nothing", descriptions[name], options)
    console.print(method_table)
    console.print("METHOD:OPTION=VALUE sets options, separated by commas: integrated-gradients:steps=200,baseline=0.5")
    console.print("captum:NAME is an attribution method of Captum, if installed: captum:DeepLift, captum:Occlusion …")
    console.print("package.module:CLASS is your own method: a subclass of agop.methods.Method, or an instance of one")
    metric_table = _table("metric", "better", "description")
    for name in metrics.names():
        metric = metrics.get(name)
        better = "higher" if metric.higher_is_better else "lower"
        metric_table.add_row(name, better, (metric.__doc__ or "").strip().splitlines()[0])
    scenario_table = _table("scenario", "benchmark", "backgrounds")
    for name in scenarios.names():
        scenario = scenarios.get(name)
        scenario_table.add_row(name, scenario.benchmark, ", ".join(scenario.backgrounds))
    model_table = _table("model", "description")
    for form, meaning in FORMS.items():
        model_table.add_row(form, meaning)
    for table in (metric_table, scenario_table, model_table):
        console.print()
        console.print(table)


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
