"""The end of a bench on a terminal: a table a scenario, then the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from agop.report.advice import advice
from agop.report.claims import FAILS, HOLDS, check, remarks
from agop.report.numbers import number
from agop.report.run import Run
from agop.report.score_tables import Figure, Table, sensitivity, tables

_COLOURS = {HOLDS: "green", FAILS: "red"}


def show(run: Run, console: Console) -> None:
    """Print the tables and the claims."""
    found = [*tables(run), *sensitivity(run)]
    cited = "; beside them, dim, the paper's figure" if any(table.cites_paper for table in found) else ""
    console.print(f"Means over {run.spec.intervals}, best in bold{cited}\n")
    for table in found:
        console.print(table.title, style="italic", markup=False, soft_wrap=True)
        for drawn in _drawn(table, console):
            console.print(drawn)
            console.print()
    claims = check(run)
    if claims:
        console.print("The paper's claims", style="bold")
    for checked in claims:
        colour = _COLOURS.get(checked.verdict, "yellow")
        console.print(f"[{colour}]{checked.verdict:9}[/] {checked.claim}: {checked.figures}", soft_wrap=True)
    for remark in remarks(run):
        console.print(remark, soft_wrap=True)
    console.print("\nIn short", style="bold")
    console.print(advice(run), soft_wrap=True, markup=False)


def _drawn(table: Table, console: Console) -> Iterator[Drawn]:
    """The table, its columns in as many pieces, one below the other, as the console is too narrow for."""
    columns, endless = list(zip(table.columns, table.labels, strict=True)), console.options.update(width=10_000)
    while columns:
        count = len(columns)
        while count > 1 and console.measure(_piece(table, columns[:count]), options=endless).maximum > console.width:
            count -= 1
        yield _piece(table, columns[:count])
        columns = columns[count:]


def _piece(table: Table, columns: list[tuple[str, str]]) -> Drawn:
    drawn = Drawn("method", *(label for _, label in columns), box=None, pad_edge=False)
    for method, cells in table.rows.items():
        drawn.add_row(Text(method), *(_cell(cells[metric], metric) for metric, _ in columns))
    return drawn


def _cell(cell: Figure, metric: str) -> Text:
    if cell.ours is None:
        return Text("–")
    ours = Text(number(cell.ours.mean, metric), style="bold" if cell.best else "")
    return ours if cell.paper is None else Text.assemble(ours, " ", (number(cell.paper, metric), "dim"))
