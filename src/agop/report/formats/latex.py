"""LaTeX: booktabs tables like the paper's."""

from __future__ import annotations

from agop.report.formats import report_format
from agop.report.numbers import interval, number
from agop.report.run import Run
from agop.report.score_tables import ScoreCell, Table, sensitivity, tables

_ESCAPES = (
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "↓": r"$\downarrow$"}
    | {character: "\\" + character for character in "_%&#${}"}
    # In braces: at the start of a line these would be arguments of the line break before it.
    | {character: "{" + character + "}" for character in "[]*"}
)


@report_format
def latex(run: Run) -> str:
    """One table environment per scenario and background."""
    return "\n\n".join(_table(table) for table in [*tables(run), *sensitivity(run)]) + "\n"


def _table(table: Table) -> str:
    head = " & ".join(_escaped(label.replace(" ↓", "↓")) for label in table.labels)
    lines = [
        _escaped(method) + " & " + " & ".join(_cell(cells[metric], metric) for metric in table.columns) + r" \\"
        for method, cells in table.rows.items()
    ]
    small = r"95\,\% interval" + (" and the paper's figure" if table.cites_paper else "")
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_escaped(table.title)}. Small print: {small}.}}",
            rf"\begin{{tabular}}{{@{{}}l{'r' * len(table.columns)}@{{}}}}",
            r"\toprule",
            rf"Method & {head} \\\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _escaped(text: str) -> str:
    """The text with LaTeX's special characters escaped; "<" and "|" need the T1 font encoding."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))


def _cell(cell: ScoreCell, metric: str) -> str:
    if cell.ours is None:
        return "--"
    mean = number(cell.ours.mean, metric)
    ours = rf"\underline{{{mean}}}" if cell.best else mean
    small = [interval(cell.ours, metric)] if cell.ours.interval else []
    small += [] if cell.paper is None else [f"paper {number(cell.paper, metric)}"]
    return ours + (rf" {{\tiny {'; '.join(small)}}}" if small else "")
