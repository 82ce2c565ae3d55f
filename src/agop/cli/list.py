"""`agop list`: what there is to choose from."""

from __future__ import annotations

from dataclasses import fields

from rich.console import Console
from rich.table import Table


def list_() -> None:
    """List the methods with their options, and the ways to name a model."""
    from agop import methods
    from agop.networks.spec import FORMS

    console = Console(highlight=False)
    table = Table("method", "needs", "what it shows", "options", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in methods.names():
        method = methods.get(name)
        options = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        first = (method.__doc__ or "").strip().splitlines()[0]
        needs = [word for word, needed in (("model", method.needs_model), ("prior", method.needs_prior)) if needed]
        table.add_row(name, ", ".join(needs) or "nothing", first, options)
    console.print(table)
    console.print()
    models = Table("model", "what it names", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for form, meaning in FORMS.items():
        models.add_row(form, meaning)
    console.print(models)
