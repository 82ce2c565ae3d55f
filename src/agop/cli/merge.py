"""`agop merge`: AGOP files made on several machines as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def merge(
    files: Annotated[list[Path], typer.Argument(help="AGOP files of one model over different pictures.")],
    out: Annotated[Path, typer.Option(help="The AGOP file to write.")] = Path("merged.safetensors"),
) -> None:
    """Join AGOP files that were made apart, from one model and different pictures, into the one of all pictures."""
    from agop.cli.options import check_out
    from agop.statistic.agop import AGOP
    from agop.statistic.merging import merge as merge_priors

    check_out(out)
    merged = merge_priors([AGOP.load(path) for path in files], [str(path) for path in files])
    merged.save(out)
    Console(soft_wrap=True, highlight=False, markup=False).print(f"wrote {out}: {merged!r}, from {len(files)} files")
