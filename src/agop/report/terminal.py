"""Report on the terminal: one table per scenario, then the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from agop.report.advice import advice
from agop.report.claims import FAILS, HOLDS, check, heading, remarks
from agop.report.numbers import number
from agop.report.run import Run
from agop.report.score_tables import ScoreCell, Table, sensitivity, tables

_COLOURS = {HOLDS: "green", FAILS: "red"}


def show(run: Run, console: Console) -> None:
    """Print the tables and the claims."""
    all_tables = [*tables(run), *sensitivity(run)]
    cited = "; the paper's figures dimmed" if any(table.cites_paper for table in all_tables) else ""
    console.print(f"Means over {run.spec.intervals}, best in bold{cited}\n")
    for table in all_tables:
        console.print(table.title, style="italic", markup=False, soft_wrap=True)
        for piece in _pieces(table, console):
            console.print(piece)
            console.print()
    claims = check(run)
    if claims:
        console.print(heading(run), style="bold")
    for checked in claims:
        colour = _COLOURS.get(checked.verdict, "yellow")
        console.print(Text.assemble((checked.verdict, colour), f"  {checked.claim}: {checked.figures}"), soft_wrap=True)
    for remark in remarks(run):
        console.print(remark, soft_wrap=True, markup=False)
    console.print("\nIn short", style="bold")
    console.print(advice(run), soft_wrap=True, markup=False)


def _pieces(table: Table, console: Console) -> Iterator[Grid]:
    """The table, split by columns into pieces that fit the console's width."""
    columns, endless = list(zip(table.columns, table.labels, strict=True)), console.options.update(width=10_000)
    while columns:
        count = len(columns)
        while count > 1 and console.measure(_piece(table, columns[:count]), options=endless).maximum > console.width:
            count -= 1
        yield _piece(table, columns[:count])
        columns = columns[count:]


def _piece(table: Table, columns: list[tuple[str, str]]) -> Grid:
    grid = Grid("method", *(escape(label) for _, label in columns), box=None, pad_edge=False)
    for method, cells in table.rows.items():
        grid.add_row(Text(method), *(_cell(cells[metric], metric) for metric, _ in columns))
    return grid


def _cell(cell: ScoreCell, metric: str) -> Text:
    if cell.ours is None:
        return Text("–")
    ours = Text(number(cell.ours.mean, metric), style="bold" if cell.best else "")
    return ours if cell.paper is None else Text.assemble(ours, " ", (number(cell.paper, metric), "dim"))
