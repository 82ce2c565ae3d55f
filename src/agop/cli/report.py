"""`agop report`: a run folder as an HTML page, Markdown, CSV, LaTeX or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.errors import InputError

_FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


def report(
    run: Annotated[Path, typer.Argument(help="Run folder of `agop bench` or `agop evaluate`.")],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="html, markdown, csv, latex or json; default: by the extension of --out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; default: RUN/index.html, or standard output if not html."),
    ] = None,
) -> None:
    """Write the report of a run as an HTML page, Markdown, CSV, LaTeX or JSON."""
    from agop.report.formats import registry
    from agop.report.run import Run
    from agop.system.files import write_atomically

    extension = ".html" if out is None else out.suffix.lower()
    if format_ is None and extension not in _FORMATS:
        raise InputError(f"{out} doesn't end in {', '.join(_FORMATS)}: rename it or pass --format")
    name = format_ or _FORMATS[extension]
    text = registry.get(name)(Run(run))
    if out is None and name != "html":
        typer.echo(text, nl=False)
        return
    path = run / "index.html" if out is None else out
    write_atomically(path, text.encode(errors="replace"))  # lone surrogates can't be written
    typer.echo(f"wrote {path}")
