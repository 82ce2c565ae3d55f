"""`agop show`: what an AGOP file holds, its concentration by class, and its maps as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli import options
from agop.cli.printing import plain_console
from agop.errors import InputError, warn

if TYPE_CHECKING:
    from rich.table import Table

    from agop.statistic.agop import AGOP
    from agop.statistic.concentration import Overview

_LISTED, _COLUMNS = 23, 6


def show(
    prior: Annotated[Path, typer.Argument(help="AGOP file, from `agop fit` or a training hook.")],
    out: Annotated[
        Path | None, typer.Option(help="PNG to write. Default: the file's name with .png, beside it.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Show an AGOP file: what it holds, how concentrated diag(M) is in each class, and its maps as a PNG."""
    from agop.statistic.agop import AGOP
    from agop.statistic.concentration import Overview, few_samples
    from agop.statistic.description import facts
    from agop.statistic.drawing import is_own_png
    from agop.system.files import check_overwrites, write_atomically

    path = prior.with_suffix(".png") if out is None else out
    if path.suffix.lower() != ".png":
        raise InputError(f"out {path} isn't a .png file: give {path.with_suffix('.png')}")
    options.check_writable(path)
    check_overwrites([path], [prior], is_own_png, force=force)
    statistic = AGOP.load(prior)
    console = plain_console()
    for name, text in facts(statistic).items():
        console.print(f"{name:<12} {text}")
    overview = Overview.of(statistic)
    console.print(f"\n{overview.line}\n")
    console.print(_table(overview))
    if warning := few_samples(statistic):
        warn(warning)
    write_atomically(path, _sheet(statistic, overview))
    console.print(f"\nwrote {path}")


def _table(overview: Overview) -> Table:
    """A row for all samples and for each of the most concentrated classes."""
    from rich.table import Table

    columns = ("", "samples", f"in {overview.whole.hot.pixels:,} pixels", "place")
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for part in (overview.whole, *overview.classes[:_LISTED]):
        share = f"{part.hot.percent} %" if part.hot.share > 0 else ""
        table.add_row(part.label, f"{part.samples:,}", share, part.hot.place)
    if len(overview.classes) > _LISTED:
        table.add_row(f"… and {len(overview.classes) - _LISTED:,} more")
    return table


def _sheet(prior: AGOP, overview: Overview) -> bytes:
    """PNG with the maps in rows, each below its caption."""
    import numpy as np

    from agop.pictures.sheets import enlarged, side_by_side, stacked
    from agop.statistic.drawing import panels, png

    large = [(caption, enlarged(np.asarray(picture))) for caption, picture in panels(prior, overview)]
    rows = [large[start : start + _COLUMNS] for start in range(0, len(large), _COLUMNS)]
    return png(stacked([side_by_side(row) for row in rows]))
