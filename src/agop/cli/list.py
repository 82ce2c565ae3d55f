"""`agop list`: available methods, metrics, benchmarks and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


def list_(
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="List the scenarios of the benchmarks with their backgrounds instead.")
    ] = False,
) -> None:
    """List the methods with their options, the metrics, the benchmarks, and how to name a model."""
    from rich.console import Console

    console = Console(highlight=False)
    if scenarios:
        console.print(_scenarios())
        return
    console.print(_methods())
    console.print("METHOD:OPTION=VALUE sets options, separated by commas: integrated-gradients:steps=200,baseline=0.5")
    console.print("captum:NAME is an attribution method of Captum, if installed: captum:DeepLift, captum:Occlusion …")
    console.print("package.module:CLASS is your own method: a subclass of agop.methods.Method, or an instance of one")
    for table in (_metrics(), _models(), _benchmarks()):
        console.print()
        console.print(table)
    console.print("agop list --scenarios lists the scenarios of the benchmarks")


def _methods() -> Table:
    from agop.cli.plugin_sources import method_sources

    table = _table("method", "needs", "description", "options")
    for method in method_sources():
        needs = ", ".join(method.needs) or "nothing"
        table.add_row(method.name, needs, method.description, ", ".join(method.options))
    return table


def _metrics() -> Table:
    from agop.cli.plugin_sources import metric_sources

    table = _table("metric", "better", "description")
    for metric in metric_sources():
        table.add_row(metric.name, "higher" if metric.higher_is_better else "lower", metric.description)
    return table


def _benchmarks() -> Table:
    from agop.cli.bench import app

    table = _table("benchmark", "description")
    for command in app.registered_commands:
        table.add_row(command.name, str(command.callback.__doc__).splitlines()[0])
    return table


def _scenarios() -> Table:
    from agop import scenarios

    table = _table("scenario", "benchmark", "backgrounds")
    for name in scenarios.names():
        scenario = scenarios.get(name)
        table.add_row(name, scenario.benchmark, ", ".join(scenario.backgrounds))
    return table


def _models() -> Table:
    from agop.model.forms import FORMS

    table = _table("model", "description")
    for form, meaning in FORMS.items():
        table.add_row(form, meaning)
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
