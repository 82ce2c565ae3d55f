"""CSV: one line per score, for a spreadsheet."""

from __future__ import annotations

from agop.report.formats import report_format
from agop.report.run import Run
from agop.report.score_tables import sensitivity, tables
from agop.system.csv_table import csv_table

_COLUMNS = ("scenario", "background", "masks", "method", "metric", "mean", "low", "high", "n", "paper", "best")


@report_format
def csv(run: Run) -> str:
    """Scores with intervals and the paper's values, one per line."""
    rows = []
    for table in [*tables(run), *sensitivity(run)]:
        for method, cells in table.rows.items():
            for metric, cell in cells.items():
                low, high = (cell.ours and cell.ours.interval) or (None, None)
                mean, n = (None, 0) if cell.ours is None else (cell.ours.mean, len(cell.ours.values))
                key = [table.scenario, table.background, table.masks, method, metric]
                rows.append([*key, mean, low, high, n, cell.paper, cell.best])
    return csv_table(_COLUMNS, rows)
