"""A selection's table as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from agop.report.numbers import number

COLUMNS = ("method", "SRG", "behind the best", "random weights", "stability", "ms per image", "gradients")
LEGEND = (
    "SRG: insertion minus deletion, mean over {images} images with 95 % intervals, about 0 for random maps. Behind the "
    "best: paired difference of SRG. Random weights: rank correlation with maps of the same model with random weights, "
    "1 if the weights don't matter. Stability: rank correlation of maps with priors of two halves of the data and two "
    "seeds, a dash if a method uses neither. Gradients: time per image, in gradients. ★: recommended, no other method "
    "is significantly ahead after correction for the number of methods."
)


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of the table below COLUMNS."""
    rows = [COLUMNS, *rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def html_table(rows: Sequence[tuple[str, ...]]) -> str:
    """The table as HTML for notebooks."""
    head, *body = (
        "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in [("th", COLUMNS), *(("td", row) for row in rows)]
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a row, under COLUMNS."""
    name = row["method"] + (" (control)" if row["control"] else " ★" if row["best"] else "")
    independent = ", independent of the model" if row["model_independent"] else ""
    return (
        name,
        _with_interval(row["srg"]),
        _with_interval(row["behind"]),
        f"{_two(row['random_weights'])}{independent}",
        _two(row["stability"]),
        number(row["milliseconds"], "milliseconds"),
        f"{row['gradients']:.1f}",
    )


def _with_interval(value: dict[str, Any] | None) -> str:
    if value is None:
        return "–"
    ends = value["interval"]
    return f"{value['mean']:.2f}" + ("" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]")


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
