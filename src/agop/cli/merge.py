"""`agop merge`: join AGOP files of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli import options
from agop.cli.printing import plain_console


def merge(
    files: Annotated[list[Path], typer.Argument(help="AGOP files of one model over different images.")],
    out: Annotated[Path, typer.Option(help="AGOP file to write.")] = Path("merged.safetensors"),
    force: options.Force = False,
) -> None:
    """Join AGOP files of one model over different images into one file."""
    from agop.statistic.agop import AGOP
    from agop.statistic.merging import merge as merge_priors

    options.check_out(out, files, force=force)
    merged = merge_priors([AGOP.load(path) for path in files], [str(path) for path in files])
    merged.save(out)
    plain_console().print(f"wrote {out}: {merged!r}, from {len(files)} files")
