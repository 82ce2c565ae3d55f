"""`agop report`: a run folder as an HTML page, Markdown, CSV, LaTeX or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli import options
from agop.errors import InputError
from agop.registry import unknown_name_error

_FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}

# Bytes at the start of a report that are the same whenever it is written: format, benchmark and title.
_START = 100


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
    samples: Annotated[
        str, typer.Option(help="all, or correct: only images that every network of the run classifies correctly.")
    ] = "all",
    force: options.Force = False,
) -> None:
    """Write the report of a run as an HTML page, Markdown, CSV, LaTeX or JSON."""
    from agop.report.formats import registry
    from agop.report.run import Run
    from agop.runs.rows import FILES
    from agop.system.files import check_overwrites, write_atomically

    extension = ".html" if out is None else out.suffix.lower()
    if format_ is None and extension not in _FORMATS:
        raise InputError(f"{out} doesn't end in {', '.join(_FORMATS)}: rename it or pass --format")
    name = format_ or _FORMATS[extension]
    if samples not in ("all", "correct"):
        raise unknown_name_error("choice of samples", samples, ["all", "correct"])
    results = Run(run) if samples == "all" else Run(run).with_correct_images()
    text = registry.get(name)(results)
    if out is None and name != "html":
        typer.echo(text, nl=False)
        return
    path = run / "index.html" if out is None else out
    content = text.encode()
    inputs = [run / name for name in ("spec.json", "about.json", "cells", *FILES)]
    check_overwrites([path], inputs, lambda path: _is_earlier(path, content), force=force)
    write_atomically(path, content)
    typer.echo(f"wrote {path}")


def _is_earlier(path: Path, content: bytes) -> bool:
    """True if the file starts as the new report does: it's an earlier one."""
    try:
        with path.open("rb") as file:
            return file.read(_START) == content[:_START]
    except OSError:
        return False
