"""`agop data`: the official CLEVR-XAI files, checked, or scenes drawn in their form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Get, check or draw the pictures of a benchmark.", no_args_is_help=True)


@app.command("clevr-xai")
def clevr_xai(
    folder: Annotated[Path | None, typer.Argument(help="The folder with the official files, unpacked or not.")] = None,
    questions: Annotated[str, typer.Option(help="simple or complex.")] = "simple",
) -> None:
    """Say where to get CLEVR-XAI; or, given a folder, whether what is there can be used."""
    from agop.scenarios.clevr.release.files import ARCHIVES, PAGE
    from agop.scenarios.clevr.release.samples import read_release

    console = _console()
    if folder is None:
        console.print(f"CLEVR-XAI's files are\n  {ARCHIVES[0]}\n  {ARCHIVES[1]}\nfrom {PAGE}")
        console.print("Put them in one folder, packed or unpacked, and see whether they are whole:")
        console.print("  agop data clevr-xai FOLDER\nthen\n  agop bench clevr-xai --data FOLDER")
        return
    console.print(read_release(folder, console.print, questions).summary())
    console.print(f"next: agop bench clevr-xai --data {folder}")


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False)
