"""LaTeX: the tables with booktabs, as the paper has them."""

from __future__ import annotations

from agop.report.formats import report_format
from agop.report.run import Run
from agop.report.tables import Figure, Table, sensitivity, tables

_ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
} | {character: "\\" + character for character in "_%&#${}"}  # fmt: skip


@report_format
def latex(run: Run) -> str:
    """One table environment a scenario and background."""
    return "\n\n".join(_table(table) for table in [*tables(run), *sensitivity(run)]) + "\n"


def _table(table: Table) -> str:
    head = " & ".join(label.replace(" ↓", r"$\downarrow$") for label in table.labels)
    lines = [
        _escaped(method) + " & " + " & ".join(_cell(cells[metric]) for metric in table.columns) + r" \\"
        for method, cells in table.rows.items()
    ]
    title = _escaped(table.title)
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{title}. Below ours, in small print, its 95\,\% interval and the paper's figure.}}",
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
    """As LaTeX shows it as it stands; "<" and "|" need the T1 font encoding, as in every text."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _cell(cell: Figure) -> str:
    if cell.ours is None:
        return "--"
    ours = rf"\underline{{{cell.ours.mean:.3f}}}" if cell.best else f"{cell.ours.mean:.3f}"
    small = []
    if cell.ours.interval is not None:
        small.append("[{:.2f}, {:.2f}]".format(*cell.ours.interval))
    if cell.paper is not None:
        small.append(f"paper {cell.paper:.3f}")
    return ours + (rf" {{\tiny {'; '.join(small)}}}" if small else "")
