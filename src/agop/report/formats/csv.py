"""CSV: one line a score, for a spreadsheet."""

from __future__ import annotations

import csv as writer
import io

from agop.report.formats import report_format
from agop.report.run import Run
from agop.report.score_tables import sensitivity, tables


@report_format
def csv(run: Run) -> str:
    """The scores with intervals and the paper's figures, one a line."""
    buffer = io.StringIO()
    lines = writer.writer(buffer, lineterminator="\n")
    lines.writerow(["scenario", "background", "masks", "method", "metric", "mean", "low", "high", "n", "paper", "best"])
    for table in [*tables(run), *sensitivity(run)]:
        for method, cells in table.rows.items():
            for metric, cell in cells.items():
                low, high = (cell.ours and cell.ours.interval) or (None, None)
                mean, n = (None, 0) if cell.ours is None else (cell.ours.mean, len(cell.ours.values))
                where = [table.scenario, table.background, table.masks, method, metric]
                lines.writerow([*where, mean, low, high, n, cell.paper, cell.best])
    return buffer.getvalue()
