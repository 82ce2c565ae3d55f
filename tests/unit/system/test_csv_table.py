"""CSV without formulas."""

import csv
import io

import pytest

from agop.system.csv_table import csv_table


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'quoted"])
def test_texts_that_a_spreadsheet_would_run_get_a_quote(text):
    rows = list(csv.reader(io.StringIO(csv_table(("name",), [(text,)]))))
    assert rows == [["name"], [f"'{text}"]]


def test_numbers_and_other_texts_are_unchanged():
    rows = list(csv.reader(io.StringIO(csv_table(("a", "b", "c"), [(-1.5, None, 'x, "y"')]))))
    assert rows[1] == ["-1.5", "", 'x, "y"']
