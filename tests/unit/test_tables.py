"""Tables as text, Markdown, HTML, LaTeX and CSV."""

import csv
import io

import pytest

from agop.tables import Table, number

TABLE = Table(("name", "a", "long name"), [("x & y", 1, "2.5 ★"), ("z", None, "–")])


@pytest.mark.parametrize("text", ["=1+1", "=cmd|x", "+1", "-1", "@SUM(A1)", "\t=1", "'quoted"])
def test_texts_that_a_spreadsheet_would_run_get_a_quote(text):
    assert list(csv.reader(io.StringIO(Table(("name",), [(text,)]).csv()))) == [["name"], [f"'{text}"]]


def test_numbers_and_other_texts_are_unchanged():
    rows = list(csv.reader(io.StringIO(Table(("a", "b", "c", "d"), [(-1.5, None, 'x, "y"', 3)]).csv())))
    assert rows[1] == ["-1.5", "", 'x, "y"', "3"]


def test_text_is_aligned_and_split_by_columns():
    assert TABLE.text() == ["name   a     long name", "x & y  1     2.5 ★", "z      None  –"]
    narrow = ["name   a", "x & y  1", "z      None", "name   long name", "x & y  2.5 ★", "z      –"]
    assert TABLE.text(21) == narrow
    assert TABLE.text(1) == narrow


def test_markdown_html_and_latex():
    assert TABLE.markdown()[:3] == ["| name | a | long name |", "|---|---|---|", "| x & y | 1 | 2.5 ★ |"]
    assert "<td>x &amp; y</td>" in TABLE.html()
    latex = TABLE.latex("A caption")
    assert r"\begin{tabular}{@{}lrr@{}}" in latex
    assert latex.index(r"\toprule") < latex.index("name & a & long name") < latex.index(r"\bottomrule")


def test_milliseconds_have_two_significant_digits():
    texts = [number(value, "milliseconds") for value in (0.000326, 0.0123, 0.9, 9.96, 123.4, 0.0)]
    assert texts == ["0.00033", "0.012", "0.90", "10.0", "123", "0"]
    assert number(0.98765, "iou") == "0.988"
    assert number(None, "iou") == "–"
