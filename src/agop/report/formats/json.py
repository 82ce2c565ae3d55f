"""JSON: the whole report, machine-readable."""

from __future__ import annotations

import json as writer
from dataclasses import asdict
from typing import Any

from agop.report.advice import advice
from agop.report.claims import check, remarks
from agop.report.formats import report_format
from agop.report.published import comparisons
from agop.report.run import Run
from agop.report.score_tables import ScoreCell, sensitivity, tables


@report_format
def json(run: Run) -> str:
    """Spec, claims and scores."""
    content = {
        "spec": asdict(run.spec),
        "about": asdict(run.about),
        "advice": advice(run),
        "claims": [asdict(checked) for checked in check(run)],
        "remarks": remarks(run),
        "published": [asdict(line) for line in comparisons(run)],
        "tables": [
            {
                "scenario": table.scenario,
                "background": table.background,
                "masks": table.masks,
                "accuracy": table.accuracy and table.accuracy.mean,
                "rows": {m: {k: _cell(cell) for k, cell in cells.items()} for m, cells in table.rows.items()},
            }
            for table in [*tables(run), *sensitivity(run)]
        ],
    }
    return writer.dumps(content, indent=1) + "\n"


def _cell(cell: ScoreCell) -> dict[str, Any]:
    ours = cell.ours
    return {
        "mean": ours and ours.mean,
        "interval": ours and ours.interval,
        "values": list(ours.values) if ours else [],
        "paper": cell.paper,
        "best": cell.best,
    }
