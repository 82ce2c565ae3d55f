"""Tables as aligned text, Markdown, HTML, LaTeX and CSV; numbers as text. pandas is imported on first use."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agop.stats import Estimate

if TYPE_CHECKING:
    from pandas import DataFrame

_LATEX = (
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "↓": r"$\downarrow$"}
    | {character: "\\" + character for character in "_%&#${}"}
    # In braces: at the start of a line these would be arguments of the line break before it.
    | {character: "{" + character + "}" for character in "[]*"}
)
# What Markdown would read as markup: punctuation, an underscore unless inside a word, the end of a link's text, an
# entity, a bare address, and the start of a heading, quote or list.
_MARKUP = re.compile(
    r"[\\|*`<~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|&(?=#?\w+;)|:(?=//)|(?<=www)\.|^[#>+=-]|^\d+[.)]", re.IGNORECASE
)


@dataclass(frozen=True)
class Table:
    """Named columns, and rows with a cell per column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def text(self, width: float = math.inf) -> list[str]:
        """Aligned lines. Columns beyond the width follow below, again beside the first column."""
        columns = [[str(cell) for cell in column] for column in zip(self.columns, *self.rows, strict=True)]
        names, *others = ([cell.ljust(max(map(len, column))) for cell in column] for column in columns)
        pieces = [[names]]
        for column in others:
            if len(pieces[-1]) > 1 and len("  ".join([cells[0] for cells in (*pieces[-1], column)])) > width:
                pieces.append([names])
            pieces[-1].append(column)
        return ["  ".join(cells).rstrip() for piece in pieces for cells in zip(*piece, strict=True)]

    def markdown(self) -> list[str]:
        """Lines of a Markdown table. Cells are taken as they are: see `escape_markdown`."""
        head, *body = (f"| {' | '.join(map(str, row))} |" for row in (self.columns, *self.rows))
        return [head, "|---" * len(self.columns) + "|", *body]

    def html(self) -> str:
        """An HTML table, with its text escaped."""
        return str(self._frame().to_html(index=False, border=0))

    def latex(self, caption: str) -> str:
        """A LaTeX table with booktabs. Cells are taken as they are: see `escape_latex`."""
        style = self._frame().style.hide(axis="index")
        columns = f"@{{}}l{'r' * (len(self.columns) - 1)}@{{}}"
        place = {"position": "t", "position_float": "centering"}
        return str(style.to_latex(hrules=True, column_format=columns, caption=caption, **place))

    def csv(self) -> str:
        """CSV. Text that a spreadsheet would run as a formula gets a quote in front."""
        rows = [[_neutralised(cell) for cell in row] for row in self.rows]
        return str(Table(self.columns, rows)._frame().to_csv(index=False, lineterminator="\n"))

    def _frame(self) -> DataFrame:
        import pandas

        return pandas.DataFrame(self.rows, columns=list(self.columns), dtype=object)


def _neutralised(cell: Any) -> Any:
    risky = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "'"))
    return f"'{cell}" if risky else cell


def escape_latex(text: str) -> str:
    """The text with LaTeX's special characters escaped; "<" and "|" need the T1 font encoding."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """The text as one line without markup."""
    return _MARKUP.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", " ".join(text.split()))


def number(value: float | None, metric: str) -> str:
    """Three decimals; two significant digits for milliseconds, which span five orders. A dash for None."""
    if value is None:
        return "–"
    if metric != "milliseconds":
        return f"{value:.3f}"
    decimals = 0 if value == 0 else max(0, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def mean(estimate: Estimate | None, metric: str) -> str:
    """The mean as `number`, a dash without an estimate."""
    return number(None if estimate is None else estimate.mean, metric)


def interval(estimate: Estimate | None, metric: str) -> str:
    """The 95 % interval in brackets, or an empty string."""
    if estimate is None or estimate.interval is None:
        return ""
    low, high = (number(end, metric) for end in estimate.interval)
    return f"[{low}, {high}]"


def counted(count: int, noun: str) -> str:
    """The count and the noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
