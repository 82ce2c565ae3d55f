"""Markdown: claims and tables, for a page on the web."""

from __future__ import annotations

import re

from agop.report.advice import advice
from agop.report.claims import check, remarks
from agop.report.formats import report_format
from agop.report.numbers import counted, interval, number
from agop.report.run import Run
from agop.report.score_tables import Figure, Table, sensitivity, tables


@report_format
def markdown(run: Run) -> str:
    """The report as Markdown."""
    spec, about, found = run.spec, run.about, [*tables(run), *sensitivity(run)]
    cited = "; in parentheses the paper's figure" if any(table.cites_paper for table in found) else ""
    lines = [
        f"# {spec.benchmark}",
        "",
        f"{_trained(run)}{spec.test_images} test images, {spec.masks} masks.",
        f"Made by `{about['command']}`",
        f"with {', '.join(f'{name} {number}' for name, number in about['versions'].items())},"
        f" on {about['hardware']['cores']} cores ({about['hardware']['machine']}).",
        "",
        *_network(run),
        f"Means over {spec.intervals}; in brackets bootstrap 95 % intervals over {spec.intervals}{cited}.",
        "The best of a column is bold; controls do not compete.",
        "",
        f"**In short:** {_escaped(advice(run))}",
        *_claims(run),
        *(line for remark in remarks(run) for line in ("", remark)),
    ]
    for table in found:
        lines += ["", f"## {_escaped(table.title)}", "", *_lines(table)]
    return "\n".join(lines) + "\n"


def _trained(run: Run) -> str:
    """Seeds and epochs, where something was trained."""
    spec = run.spec
    return f"{counted(spec.seeds, 'seed')}, {counted(spec.epochs, 'epoch')}, " if spec.epochs else ""


def _claims(run: Run) -> list[str]:
    """What became of the paper's claims; nothing about a run of which it has none."""
    lines = [f"| {c.claim} | **{c.verdict}** | {c.figures} |" for c in check(run)]
    return ["", "## The paper's claims", "", "| claim | verdict | figures |", "|---|---|---|", *lines] if lines else []


def _network(run: Run) -> list[str]:
    """What was trained on what, where a run could choose."""
    told = [run.about.get("network"), *run.about.get("notes", [])]
    return [line for text in told if text for line in (text.replace("\n", "; "), "")]


def _lines(table: Table) -> list[str]:
    head = ["| method | " + " | ".join(table.labels) + " |", "|---" * (len(table.labels) + 1) + "|"]
    return head + [
        f"| {_escaped(method)} | " + " | ".join(_cell(cells[metric], metric) for metric in table.columns) + " |"
        for method, cells in table.rows.items()
    ]


def _escaped(text: str) -> str:
    """With a backslash before what would be read as a mark; an underscore inside a word is none."""
    return re.sub(r"[\\|*`<]|\b_\B|\B_\b", r"\\\g<0>", text)


def _cell(cell: Figure, metric: str) -> str:
    if cell.ours is None:
        return "–"
    mean = number(cell.ours.mean, metric)
    told = [f"**{mean}**" if cell.best else mean, interval(cell.ours, metric)]
    told += [] if cell.paper is None else [f"({number(cell.paper, metric)})"]
    return " ".join(part for part in told if part)
