"""Markdown, CSV, LaTeX, JSON and the terminal show the same scores."""

import csv
import io
import re
from itertools import chain

import pytest
from markdown_it import MarkdownIt

from tests.command import error_of
from tests.report_runs import (
    Tags,
    change_about,
    replace_name,
    report,
    terminal_text,
    write_clevr,
    write_evaluation,
    write_xai_tris,
)  # fmt: skip

SPECIAL = r"a|b_$x$ [red]c[/] {d} 50% #1 & <i>\~^"


def test_formats_agree_with_the_rows(tmp_path):
    run = write_xai_tris(tmp_path)
    lines = list(csv.DictReader(io.StringIO(report(run, "csv"))))
    assert len(lines) == 8 * 9 * 5
    line = next(x for x in lines if x["method"] == "agop-global" and x["metric"] == "iou" and x["scenario"] == "linear")
    assert float(line["mean"]) == pytest.approx(0.235 + 0.001)
    assert float(line["paper"]) == 0.235
    content = report(run)
    assert len(content["claims"]) == 11
    assert content["tables"][0]["rows"]["agop-global"]["iou"]["mean"] == pytest.approx(0.236)
    assert r"\underline{0.315} {\tiny [0.312, 0.318]; paper 0.314}" in report(run, "latex")
    text = report(run, "markdown")
    assert "**0.315** [0.312, 0.318] (0.314)" in text
    assert text.count("\n| AGOP-Local equals VanillaGrad | **holds** |") == 1


def test_terminals_of_any_width_show_all_scores_and_claims(tmp_path):
    run = write_xai_tris(tmp_path)
    wide, narrow = (terminal_text(run, width, verbose=True) for width in (200, 50))
    row = next(line for line in wide.splitlines() if line.startswith("agop-weighted"))
    assert row.split()[1:5] == ["0.643", "0.642", "0.315", "0.314"]
    assert sum(line.startswith("holds ") for line in wide.splitlines()) == 11
    assert "…" not in narrow
    whole, pieces = (
        [line.split()[1:] for line in text.splitlines() if line.startswith("integrated-gradients ")]
        for text in (wide, narrow)
    )
    assert len(pieces) > len(whole) == 8
    assert sorted(chain(*pieces)) == sorted(chain(*whole))


def write_hostile(folder, text):
    """A run with this text as the name of a method, a metric's label, the network, a note and the command."""
    run = write_xai_tris(folder, seeds=1)
    run.about.metrics["iou"]["label"] = text
    change_about(run, network=text, notes=[text], command=text)
    return replace_name(folder, "vanilla", text)


@pytest.mark.parametrize(
    "text",
    [
        SPECIAL, "# x", "1. x", "> x", "- x", "x | y", "[x](javascript:y)", "![x](y)", "[x]: y", "<b>x</b>",
        "&lt;b&gt;", "_x_ *y* ~~z~~ `c` __w__", "``x`", "x\\", "<https://x.org>", "=== x", "+ x", "2) x", "[1, 2](y)",
    ],
)  # fmt: skip
def test_markdown_shows_text_from_files_and_reads_no_markup_in_it(text, tmp_path):
    page = report(write_hostile(tmp_path, text), "markdown")
    shown = Tags(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(page))
    allowed = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "strong", "code"}
    assert set(shown.names) <= allowed
    # Network, note, command; the label in 8 tables; the method in 8 tables.
    assert shown.text.count(text) >= 3 + 8 + 8


def test_markdown_has_no_bare_address_and_no_formula(tmp_path):
    """GitHub makes links and formulas of them."""
    page = report(write_hostile(tmp_path, "https://x.org www.x.org $y$"), "markdown")
    without_code = re.sub("`.*`", "", page)
    assert "https://" not in without_code
    assert "www.x" not in without_code
    assert without_code.count("$") == without_code.count("\\$") > 0


@pytest.mark.parametrize("text", [SPECIAL, r"\input{x}", "% x", "[1pt] x", "* x", "x ↓ y"])
def test_latex_has_only_its_own_commands(text, tmp_path):
    page = report(write_hostile(tmp_path, text), "latex")
    commands = set(re.findall(r"\\[a-zA-Z]+", page))
    assert commands <= {
        "\\begin", "\\end", "\\centering", "\\caption", "\\toprule", "\\midrule", "\\bottomrule", "\\underline",
        "\\tiny", "\\textbackslash", "\\textasciitilde", "\\textasciicircum", "\\downarrow",
    }  # fmt: skip
    bare = re.sub(r"\\.", "", page)
    assert not set("%#") & set(bare)
    assert bare.count("{") == bare.count("}")
    lines = [line for line in page.splitlines() if " & " in line]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {5}
    assert not [line for line in lines if line.startswith(("[", "*"))]


def test_the_terminal_shows_text_from_files_without_markup(tmp_path):
    for verbose, folder in ((True, "all"), (False, "summary")):
        run = write_hostile(tmp_path / folder, SPECIAL)
        assert terminal_text(run, width=400, verbose=verbose).count(SPECIAL) >= (16 if verbose else 7)
        assert "[/]" in terminal_text(write_hostile(tmp_path / f"{folder}-closed", "[/]"), width=400, verbose=verbose)


def test_the_terminal_summary_has_the_best_two_methods_of_each_task_and_the_verdicts(tmp_path):
    lines = terminal_text(write_xai_tris(tmp_path)).splitlines()
    assert len(lines) <= 40
    assert "best by" in lines[0]
    assert sum(line.startswith("holds ") for line in lines) == 11


def test_every_format_has_the_variants(tmp_path):
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]})
    for form in ("markdown", "csv", "json", "latex"):
        assert "integrated-gradients@black" in str(report(run, form))
    text = report(run, "markdown")
    assert "a network" in text
    assert "kept: 3" in text
    assert "all_objects masks covering 16.2% of the pixels" in text
    assert r"16.2\% of the pixels" in report(run, "latex")


def test_an_unknown_format_raises_with_a_suggestion(tmp_path):
    write_evaluation(tmp_path, {"vanilla": [0.1, 0.2]})
    assert "did you mean 'markdown'" in error_of("report", tmp_path, "--format", "markdwn", folder=tmp_path)
