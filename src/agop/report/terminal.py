"""The end of a bench on a terminal: a table a scenario, then the paper's claims."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Drawn

from agop.report.advice import advice
from agop.report.claims import FAILS, HOLDS, check, remarks
from agop.report.run import Run
from agop.report.tables import Figure, sensitivity, tables

_COLOURS = {HOLDS: "green", FAILS: "red"}


def show(run: Run, console: Console) -> None:
    """Print the tables and the claims."""
    console.print(f"Means over {run.spec.intervals}, best in bold; beside them, dim, the paper's figure\n")
    for table in [*tables(run), *sensitivity(run)]:
        drawn = Drawn("method", *table.labels, title=table.title, title_justify="left", box=None, pad_edge=False)
        for method, cells in table.rows.items():
            drawn.add_row(method, *(_cell(cells[metric]) for metric in table.columns))
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


def _cell(cell: Figure) -> str:
    if cell.ours is None:
        return "–"
    ours = f"[bold]{cell.ours.mean:.3f}[/]" if cell.best else f"{cell.ours.mean:.3f}"
    return ours if cell.paper is None else f"{ours} [dim]{cell.paper:.3f}[/]"
