"""Markdown, CSV, LaTeX, JSON and the terminal show the same scores."""

import csv
import io
import json
from dataclasses import replace
from itertools import chain

import pytest
from rich.console import Console

from agop.errors import UnknownNameError
from agop.report.formats import registry
from agop.report.run import Run
from agop.report.terminal import show
from tests.report_runs import write_clevr, write_xai_tris

SPECIAL = r"a|b_$x$ [red]c[/] {d} 50% #1 & <i>\~^"


def terminal_text(run, width=200):
    console = Console(file=io.StringIO(), width=width)
    show(run, console)
    return console.file.getvalue()


def test_formats_agree_with_the_rows(tmp_path):
    run = write_xai_tris(tmp_path)
    lines = list(csv.DictReader(io.StringIO(registry.get("csv")(run))))
    assert len(lines) == 8 * 9 * 5
    line = next(x for x in lines if x["method"] == "agop-global" and x["metric"] == "iou" and x["scenario"] == "linear")
    assert float(line["mean"]) == pytest.approx(0.235 + 0.001)
    assert float(line["paper"]) == 0.235
    content = json.loads(registry.get("json")(run))
    assert len(content["claims"]) == 11
    assert content["tables"][0]["rows"]["agop-global"]["iou"]["mean"] == pytest.approx(0.236)
    assert r"\underline{0.315} {\tiny [0.312, 0.318]; paper 0.314}" in registry.get("latex")(run)
    text = registry.get("markdown")(run)
    assert "**0.315** [0.312, 0.318] (0.314)" in text
    assert text.count("\n| AGOP-Local equals VanillaGrad | **holds** |") == 1


def test_terminals_of_any_width_show_all_scores_and_claims(tmp_path):
    run = write_xai_tris(tmp_path)
    wide, narrow = (terminal_text(run, width) for width in (200, 50))
    row = next(line for line in wide.splitlines() if line.startswith("agop-weighted"))
    assert row.split()[1:5] == ["0.643", "0.642", "0.315", "0.314"]
    assert wide.count("holds ") == 11
    assert "…" not in narrow
    whole, pieces = (
        [line.split()[1:] for line in text.splitlines() if line.startswith("integrated-gradients ")]
        for text in (wide, narrow)
    )
    assert len(pieces) > len(whole) == 8
    assert sorted(chain(*pieces)) == sorted(chain(*whole))


def test_special_characters_in_names_are_escaped(tmp_path):
    run = write_xai_tris(tmp_path, lambda row: {"method": SPECIAL} if row["method"] == "vanilla" else None)
    replace(run.spec, methods=(SPECIAL, "gradcam")).save(tmp_path)
    run = Run(tmp_path)
    assert terminal_text(run).count(SPECIAL) >= 8
    row = next(line for line in registry.get("markdown")(run).splitlines() if line.startswith(r"| a\|"))
    assert row.startswith(r"| a\|b\_$x$ [red]c[/] {d} 50% #1 & \<i>\\~^ | ")
    line = next(line for line in registry.get("latex")(run).splitlines() if line.startswith("a|b"))
    escaped = r"a|b\_\$x\$ [red]c[/] \{d\} 50\% \#1 \& <i>\textbackslash{}\textasciitilde{}\textasciicircum{} & "
    assert line.startswith(escaped)


def test_every_format_has_the_variants(tmp_path):
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]})
    for form in ("markdown", "csv", "json", "latex"):
        assert "integrated-gradients@black" in registry.get(form)(run)
    text = registry.get("markdown")(run)
    assert "a network" in text
    assert "kept: 3" in text
    assert "all_objects masks covering 16.2% of the pixels" in text
    assert r"16.2\% of the pixels" in registry.get("latex")(run)


def test_an_unknown_format_raises_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'markdown'"):
        registry.get("markdwn")
