"""`agop report`: a run folder as a page, a table or data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.errors import InputError

_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


def report(
    run: Annotated[Path, typer.Argument(help="A run folder of `agop bench` or `agop evaluate`.")],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="html, markdown, csv, latex or json; by default what --out ends in, else html."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default RUN/index.html, other formats to the terminal.")
    ] = None,
) -> None:
    """Write the page of a run, or its tables in another form, from its folder alone."""
    from agop.report.formats import registry
    from agop.report.run import Run
    from agop.system.files import write_atomically

    ending = ".html" if out is None else out.suffix.lower()
    if format_ is None and ending not in _ENDINGS:
        raise InputError(f"{out} does not end in {', '.join(_ENDINGS)}: name it so, or give --format")
    chosen = format_ or _ENDINGS[ending]
    text = registry.get(chosen)(Run(run))
    if out is None and chosen != "html":
        typer.echo(text, nl=False)
        return
    path = run / "index.html" if out is None else out
    write_atomically(path, text.encode())
    typer.echo(f"wrote {path}")
