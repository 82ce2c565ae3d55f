"""CSV: one line per score, for a spreadsheet."""

from __future__ import annotations

import csv as writer
import io

from agop.report.formats import report_format
from agop.report.run import Run
from agop.report.score_tables import sensitivity, tables


@report_format
def csv(run: Run) -> str:
    """Scores with intervals and the paper's values, one per line."""
    buffer = io.StringIO()
    lines = writer.writer(buffer, lineterminator="\n")
    lines.writerow(["scenario", "background", "masks", "method", "metric", "mean", "low", "high", "n", "paper", "best"])
    for table in [*tables(run), *sensitivity(run)]:
        for method, cells in table.rows.items():
            for metric, cell in cells.items():
                low, high = (cell.ours and cell.ours.interval) or (None, None)
                mean, n = (None, 0) if cell.ours is None else (cell.ours.mean, len(cell.ours.values))
                key = [table.scenario, table.background, table.masks, method, metric]
                lines.writerow([*map(_text, key), mean, low, high, n, cell.paper, cell.best])
    return buffer.getvalue()


def _text(name: str) -> str:
    """The name, with a quote before what a spreadsheet would run as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "'")) else name
