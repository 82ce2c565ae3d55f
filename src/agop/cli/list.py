"""`agop list`: what there is to choose from."""

from __future__ import annotations

from dataclasses import fields

from rich.console import Console
from rich.table import Table


def list_() -> None:
    """List the methods with their options, the metrics, the scenarios, and the ways to name a model."""
    from agop import methods, metrics, scenarios
    from agop.model.loading import FORMS

    console = Console(highlight=False)
    table = Table("method", "needs", "what it shows", "options", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    told = methods.descriptions(methods.names())
    for name in methods.names():
        method = methods.get(name)
        options = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        needs = [word for word, needed in (("model", method.needs_model), ("prior", method.needs_prior)) if needed]
        table.add_row(name, ", ".join(needs) or "nothing", told[name], options)
    console.print(table)
    console.print(
        "captum:NAME is an attribution of Captum's, if that is installed: captum:DeepLift, captum:Occlusion …"
    )
    console.print(
        "package.module:CLASS is a method of your own, a subclass of agop.methods.Method, or an object of one"
    )
    console.print()
    scores = Table("metric", "better", "what it says", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in metrics.names():
        metric = metrics.get(name)
        better = "higher" if metric.higher_is_better else "lower"
        scores.add_row(name, better, (metric.__doc__ or "").strip().splitlines()[0])
    console.print(scores)
    console.print()
    tasks = Table("scenario", "benchmark", "backgrounds", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in scenarios.names():
        scenario = scenarios.get(name)
        tasks.add_row(name, scenario.benchmark, ", ".join(scenario.backgrounds))
    console.print(tasks)
    console.print()
    models = Table("model", "what it names", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for form, meaning in FORMS.items():
        models.add_row(form, meaning)
    console.print(models)
