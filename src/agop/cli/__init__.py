"""The command line: one file a command."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer
from rich.console import Console

from agop.cli.explain import explain
from agop.cli.fit import fit
from agop.cli.list import list_
from agop.errors import AGOPError

app = typer.Typer(
    help="Explain image classifiers with the Average Gradient Outer Product.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("fit")(fit)
app.command("explain")(explain)
app.command("list")(list_)


def main() -> None:
    """Run a command; an error made on purpose is one line, not a traceback."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.print("[yellow]warning:[/]", str(message))

    warnings.showwarning = show
    try:
        app()
    except AGOPError as error:
        console.print("[red]error:[/]", str(error))
        sys.exit(2)
