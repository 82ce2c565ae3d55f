"""Markdown: claims and tables."""

from __future__ import annotations

import re

from agop.report.advice import advice
from agop.report.claims import check, remarks
from agop.report.formats import report_format
from agop.report.numbers import counted, interval, number
from agop.report.run import Run
from agop.report.score_tables import ScoreCell, Table, sensitivity, tables


@report_format
def markdown(run: Run) -> str:
    """The report as Markdown."""
    spec, about, all_tables = run.spec, run.about, [*tables(run), *sensitivity(run)]
    cited = " and the paper's figures in parentheses" if any(table.cites_paper for table in all_tables) else ""
    lines = [
        f"# {spec.benchmark}",
        "",
        f"{_trained(run)}{spec.test_images} test images, {spec.masks} masks.",
        f"Made by `{about['command']}`",
        f"with {', '.join(f'{name} {number}' for name, number in about['versions'].items())},"
        f" on {about['hardware']['cores']} cores ({about['hardware']['machine']}).",
        "",
        *_network(run),
        f"Means over {spec.intervals}, with bootstrap 95 % intervals over {spec.intervals} in brackets{cited}.",
        "The best value of each column is bold. Controls are excluded.",
        "",
        f"**In short:** {_escaped(advice(run))}",
        *_claims(run),
        *(line for remark in remarks(run) for line in ("", remark)),
    ]
    for table in all_tables:
        lines += ["", f"## {_escaped(table.title)}", "", *_lines(table)]
    return "\n".join(lines) + "\n"


def _trained(run: Run) -> str:
    """Seeds and epochs of a run that trained models."""
    spec = run.spec
    return f"{counted(spec.seeds, 'seed')}, {counted(spec.epochs, 'epoch')}, " if spec.epochs else ""


def _claims(run: Run) -> list[str]:
    """Table of the paper's claims; nothing if the paper has none about this run."""
    lines = [f"| {c.claim} | **{c.verdict}** | {c.figures} |" for c in check(run)]
    return ["", "## The paper's claims", "", "| claim | verdict | evidence |", "|---|---|---|", *lines] if lines else []


def _network(run: Run) -> list[str]:
    """The run's network and notes, one paragraph each."""
    texts = [run.about.get("network"), *run.about.get("notes", [])]
    return [line for text in texts if text for line in (text.replace("\n", "; "), "")]


def _lines(table: Table) -> list[str]:
    head = ["| method | " + " | ".join(table.labels) + " |", "|---" * (len(table.labels) + 1) + "|"]
    return head + [
        f"| {_escaped(method)} | " + " | ".join(_cell(cells[metric], metric) for metric in table.columns) + " |"
        for method, cells in table.rows.items()
    ]


def _escaped(text: str) -> str:
    """The text with Markdown's special characters escaped; underscores inside a word need no escape."""
    return re.sub(r"[\\|*`<]|\b_\B|\B_\b", r"\\\g<0>", text)


def _cell(cell: ScoreCell, metric: str) -> str:
    if cell.ours is None:
        return "–"
    mean = number(cell.ours.mean, metric)
    paper = "" if cell.paper is None else f"({number(cell.paper, metric)})"
    return " ".join(filter(None, [f"**{mean}**" if cell.best else mean, interval(cell.ours, metric), paper]))
