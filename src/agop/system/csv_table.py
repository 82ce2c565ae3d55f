"""CSV that a spreadsheet opens without running formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and rows as CSV. Texts that a spreadsheet would run as formulas get a quote in front."""
    buffer = io.StringIO()
    lines = csv.writer(buffer, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "'"))
    return f"'{value}" if risky else value
