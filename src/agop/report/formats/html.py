"""HTML: one page with tables, maps and charts that opens in any browser and needs no network."""

from __future__ import annotations

from agop.report.formats import report_format
from agop.report.run import Run


@report_format
def html(run: Run) -> str:
    """The report as one self-contained page."""
    from agop.report.page import page

    return page(run)
