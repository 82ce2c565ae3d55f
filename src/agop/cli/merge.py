"""`agop merge`: join AGOP files of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli.printing import plain_console


def merge(
    files: Annotated[list[Path], typer.Argument(help="AGOP files of one model over different images.")],
    out: Annotated[Path, typer.Option(help="AGOP file to write.")] = Path("merged.safetensors"),
) -> None:
    """Join AGOP files of one model over different images into one file."""
    from agop.cli.options import check_out
    from agop.statistic.agop import AGOP
    from agop.statistic.merging import merge as merge_priors

    check_out(out)
    merged = merge_priors([AGOP.load(path) for path in files], [str(path) for path in files])
    merged.save(out)
    plain_console().print(f"wrote {out}: {merged!r}, from {len(files)} files")
