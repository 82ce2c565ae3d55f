"""`agop data`: check the official files of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.printing import plain_console

app = typer.Typer(help="Check the official data of a benchmark.", no_args_is_help=True, rich_markup_mode=None)


@app.command("clevr-xai")
def clevr_xai(
    folder: Annotated[Path | None, typer.Argument(help="Folder with the official files, unpacked or not.")] = None,
    questions: Annotated[str, typer.Option(help="simple or complex.")] = "simple",
) -> None:
    """Check a folder with the CLEVR-XAI release; without a folder, print where to download it.

    The reader has been tested on files written from the release's published description, not on the release itself.
    """
    from agop.scenarios.clevr.release.files import ARCHIVES, PAGE
    from agop.scenarios.clevr.release.samples import read_release

    console = plain_console()
    if folder is None:
        console.print(f"Download CLEVR-XAI's files\n  {ARCHIVES[0]}\n  {ARCHIVES[1]}\nfrom {PAGE}")
        console.print("into one folder. Unpacking them is optional. Then check them and run the benchmark:")
        console.print("  agop data clevr-xai FOLDER\n  agop bench clevr-xai --data FOLDER")
        return
    console.print(read_release(folder, console.print, questions).summary())
    console.print(f"next: agop bench clevr-xai --data {folder}")
