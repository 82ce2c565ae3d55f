"""`agop report`: a run folder as a page, a table or data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="A run folder of `agop bench`.")],
    format_: Annotated[str, typer.Option("--format", help="markdown, csv, latex or json.")] = "markdown",
    out: Annotated[Path | None, typer.Option(help="The file to write; by default the terminal.")] = None,
) -> None:
    """Write the tables and claims of a run, from its folder alone."""
    from agop.files import write_whole
    from agop.report.formats import registry
    from agop.report.run import Run

    text = registry.get(format_)(Run(run))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_whole(out, text.encode())
    typer.echo(f"wrote {out}")
