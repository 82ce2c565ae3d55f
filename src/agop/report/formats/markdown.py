"""Markdown: claims and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agop.report.advice import advice
from agop.report.claims import check, heading, remarks
from agop.report.estimate import Estimate
from agop.report.formats import report_format
from agop.report.image_choice import image_choices
from agop.report.numbers import counted, interval, number
from agop.report.published import comparisons, published
from agop.report.run import Run
from agop.report.score_tables import ScoreCell, Table, sensitivity, tables

# What Markdown would read as markup: punctuation, an underscore unless inside a word, the end of a link's text, an
# entity, a bare address, and the start of a heading, quote or list.
_MARKUP = re.compile(
    r"[\\|*`<~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|&(?=#?\w+;)|:(?=//)|(?<=www)\.|^[#>+=-]|^\d+[.)]", re.IGNORECASE
)


@report_format
def markdown(run: Run) -> str:
    """The report as Markdown."""
    spec, about, all_tables = run.spec, run.about, [*tables(run), *sensitivity(run)]
    cited = " and the paper's figures in parentheses" if any(table.cites_paper for table in all_tables) else ""
    lines = [
        f"# {_escaped(spec.benchmark)}",
        "",
        f"{_trained(run)}{run.images}, {_escaped(spec.masks)} masks.",
        f"Made by {_code(about.command)}",
        f"with {_escaped('; resumed with '.join(run.versions))},"
        f" on {about.hardware.cores} cores ({_escaped(about.hardware.machine)}).",
        "",
        *_network(run),
        f"Means over {spec.intervals}, with bootstrap 95 % intervals over {spec.intervals} in brackets{cited}.",
        "The best value of each column is bold. Controls are excluded.",
        "",
        f"**In short:** {_escaped(advice(run))}",
        *_claims(run),
        *(line for remark in remarks(run) for line in ("", _escaped(remark))),
    ]
    lines += [*_published(run), *_image_choices(run)]
    for table in all_tables:
        lines += ["", f"## {_escaped(table.title)}", "", *_lines(table)]
    return "\n".join(lines) + "\n"


def _trained(run: Run) -> str:
    """Seeds and epochs of a run that trained models."""
    spec = run.spec
    return f"{counted(spec.seeds, 'seed')}, {counted(spec.epochs, 'epoch')}, " if spec.epochs else ""


def _claims(run: Run) -> list[str]:
    """Table of the paper's claims; nothing if the paper has none about this run."""
    lines = [f"| {c.claim} | **{c.verdict}** | {_escaped(c.figures)} |" for c in check(run)]
    return ["", f"## {heading(run)}", "", "| claim | verdict | evidence |", "|---|---|---|", *lines] if lines else []


def _published(run: Run) -> list[str]:
    """Table of our values beside those of the published benchmark."""
    lines = [
        f"| {c.scenario} | {c.background} | {c.method} | {c.ours} | {c.published:.2f} | {c.difference:+.2f} |"
        for c in comparisons(run)
    ]
    if not lines:
        return []
    about = published()
    sentence = (
        f"Rank accuracy with {about['masks']} masks, on images that every network of the run classifies correctly,"
    )
    return [
        "", "## Beside the published benchmark", "",
        f"{sentence} and the published precision: {about['source']}, ±{about['reading_error']}.", "",
        "| scenario | background | method | ours | published | difference |", "|---|---|---|---|---|---|", *lines,
    ]  # fmt: skip


def _image_choices(run: Run) -> list[str]:
    """Table of scores on all test images and on those classified correctly."""
    metric, places = image_choices(run)
    if not places:
        return []
    methods = list(next(iter(places.values())))
    lines = [
        f"| {_escaped(place)} | " + " | ".join(_means(both, metric) for both in scores.values()) + " |"
        for place, scores in places.items()
    ]
    label = _escaped(run.metrics[metric]["label"])
    return [
        "", "## All images, or only those classified correctly", "",
        f"{label} with {_escaped(run.masks)} masks, on all test images / on those that all networks of the run with",
        "the same task and seed classify correctly.", "",
        f"| | {' | '.join(map(_escaped, methods))} |", "|---" * (len(methods) + 1) + "|", *lines,
    ]  # fmt: skip


def _means(scores: Iterable[Estimate | None], metric: str) -> str:
    return " / ".join(number(None if score is None else score.mean, metric) for score in scores)


def _network(run: Run) -> list[str]:
    """The run's network and notes, one paragraph each."""
    texts = [run.about.network or "", *run.about.notes]
    return [line for text in texts if text for line in (_escaped(text.replace("\n", "; ")), "")]


def _lines(table: Table) -> list[str]:
    labels = " | ".join(map(_escaped, table.labels))
    head = [f"| method | {labels} |", "|---" * (len(table.labels) + 1) + "|"]
    return head + [
        f"| {_escaped(method)} | " + " | ".join(_cell(cells[metric], metric) for metric in table.columns) + " |"
        for method, cells in table.rows.items()
    ]


def _escaped(text: str) -> str:
    """The text as one line without markup."""
    return _MARKUP.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", " ".join(text.split()))


def _code(text: str) -> str:
    """The text as code, between more backticks than it contains in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{' '.join(text.split()) or '–'}{space}{fence}"


def _cell(cell: ScoreCell, metric: str) -> str:
    if cell.ours is None:
        return "–"
    mean = number(cell.ours.mean, metric)
    paper = "" if cell.paper is None else f"({number(cell.paper, metric)})"
    return " ".join(filter(None, [f"**{mean}**" if cell.best else mean, interval(cell.ours, metric), paper]))
