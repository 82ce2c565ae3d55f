"""Report formats: terminal, Markdown, LaTeX, CSV, JSON, HTML."""

import json as writer
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from agop.registry import Registry
from agop.report.advice import advice
from agop.report.claims import FAILS, HOLDS, check, heading, remarks, tally
from agop.report.folder import is_control
from agop.report.run import Run, comparisons, headline, image_choices, published
from agop.report.tables import ScoreCell, ScoreTable, score_tables
from agop.tables import Table, counted, escape_latex, escape_markdown, mean

Format = Callable[[Run], str]
registry: Registry[Format] = Registry("format")
_COLOURS = {HOLDS: "green", FAILS: "red"}
# Lines of tasks in the terminal.
_MOST_TASKS = 20
_COLUMNS = ("scenario", "background", "masks", "method", "metric", "mean", "low", "high", "n", "paper", "best")


def report_format(function: Format) -> Format:
    """Register a function Run → text as a report format, under the function's name."""
    registry.add(function.__name__, function)
    return function


def show(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print the best method of each task, the verdicts and a recommendation; if verbose, all tables and figures."""
    tables = score_tables(run)
    if verbose:
        cited = "; the paper's figures dimmed" if any(table.cites_paper for table in tables) else ""
        console.print(f"Means over {run.spec.intervals}, best in bold{cited}\n")
        for table in tables:
            console.print(table.title, style="italic", markup=False, soft_wrap=True)
            for piece in _pieces(table, console):
                console.print(piece)
                console.print()
    else:
        console.print(_best_methods(run, tables))
    claims = check(run)
    if claims:
        console.print(f"\n{heading(run)}", style="bold")
    for checked in claims:
        colour, figures = _COLOURS.get(checked.verdict, "yellow"), f": {checked.figures}" if verbose else ""
        console.print(Text.assemble((checked.verdict, colour), f"  {checked.claim}{figures}"), soft_wrap=verbose)
    for remark in remarks(run) if verbose else ():
        console.print(remark, soft_wrap=True, markup=False)
    console.print("\nIn short", style="bold")
    for line in (*advice(run), *tally(claims)):
        console.print(f"- {line}", soft_wrap=True, markup=False)


def _best_methods(run: Run, tables: Sequence[ScoreTable]) -> Grid:
    """A line per task with the main metric of the best method, and of the second."""
    metric, sign = headline(run), 1 if run.metrics[headline(run)]["higher_is_better"] else -1
    grid = Grid("task", f"best by {escape(run.metrics[metric]['label'])}", "second", box=None, pad_edge=False)
    for table in tables[:_MOST_TASKS]:
        cells = {m: cell for m, row in table.rows.items() for cell in row if cell.metric == metric and cell.ours}
        order = sorted(cells, key=lambda m: -sign * cells[m].ours.mean)  # type: ignore[union-attr]  # it isn't None
        first = [f"{m} {cells[m].mean} {cells[m].interval}" for m in order if not is_control(m)][:2]
        grid.add_row(*map(Text, (re.split(" covering|, accuracy", table.title)[0], *first)))
    return grid


def _pieces(table: ScoreTable, console: Console) -> Iterator[Grid]:
    """The table, split by columns into pieces that fit the console's width."""
    endless, start = console.options.update(width=10_000), 0
    while start < len(table.labels):
        end = len(table.labels)
        while end > start + 1 and console.measure(_piece(table, start, end), options=endless).maximum > console.width:
            end -= 1
        yield _piece(table, start, end)
        start = end


def _piece(table: ScoreTable, start: int, end: int) -> Grid:
    grid = Grid("method", *map(escape, [*table.labels.values()][start:end]), box=None, pad_edge=False)
    for method, cells in table.rows.items():
        texts = [Text(cell.mean, style="bold" if cell.best else "") for cell in cells]
        papers = [f" {cell.published}" if cell.ours and cell.published else "" for cell in cells]
        both = [Text.assemble(ours, (paper, "dim")) for ours, paper in zip(texts, papers, strict=True)]
        grid.add_row(Text(method), *both[start:end])
    return grid


@report_format
def csv(run: Run) -> str:
    """Scores with intervals and the paper's values, one per line."""
    rows = []
    for table in score_tables(run):
        for method, cells in table.rows.items():
            for cell in cells:
                low, high = (cell.ours and cell.ours.interval) or (None, None)
                mean, n = (None, 0) if cell.ours is None else (cell.ours.mean, len(cell.ours.values))
                rows.append([*table.place, method, cell.metric, mean, low, high, n, cell.paper, cell.best])
    return Table(_COLUMNS, rows).csv()


@report_format
def html(run: Run) -> str:
    """The report as one self-contained page."""
    from agop.report.page import page

    return page(run)


@report_format
def json(run: Run) -> str:
    """Spec, claims and scores."""
    tables = []
    for table in score_tables(run):
        about = dict(zip(("scenario", "background", "masks"), table.place, strict=True))
        accuracy = table.accuracy and table.accuracy.mean
        rows = {
            method: {
                cell.metric: {
                    "mean": cell.ours and cell.ours.mean,
                    "interval": cell.ours and cell.ours.interval,
                    "values": list(cell.ours.values) if cell.ours else [],
                    "paper": cell.paper,
                    "best": cell.best,
                }
                for cell in cells
            }
            for method, cells in table.rows.items()
        }
        tables.append({**about, "accuracy": accuracy, "rows": rows})
    content = {
        "spec": asdict(run.spec),
        "about": asdict(run.about),
        "advice": advice(run),
        "claims": [asdict(checked) for checked in check(run)],
        "remarks": remarks(run),
        "published": [asdict(line) for line in comparisons(run)],
        "tables": tables,
    }
    return writer.dumps(content, indent=1) + "\n"


@report_format
def latex(run: Run) -> str:
    """One table environment per scenario and background."""
    tables = []
    for table in score_tables(run):
        small = r"95\,\% interval" + (" and the paper's figure" if table.cites_paper else "")
        columns = ["Method", *(escape_latex(label.replace(" ↓", "↓")) for label in table.labels.values())]
        rows = [[escape_latex(method), *map(_cell_latex, cells)] for method, cells in table.rows.items()]
        tables.append(Table(columns, rows).latex(f"{escape_latex(table.title)}. Small print: {small}."))
    return "\n".join(tables)


def _cell_latex(cell: ScoreCell) -> str:
    if cell.ours is None:
        return "--"
    small = [cell.interval, f"paper {cell.published}" if cell.published else ""]
    text = "; ".join(filter(None, small))
    return (rf"\underline{{{cell.mean}}}" if cell.best else cell.mean) + (rf" {{\tiny {text}}}" if text else "")


@report_format
def markdown(run: Run) -> str:
    """The report as Markdown."""
    spec, about, tables = run.spec, run.about, score_tables(run)
    cited = " and the paper's figures in parentheses" if any(table.cites_paper for table in tables) else ""
    trained = f"{counted(spec.seeds, 'seed')}, {counted(spec.epochs, 'epoch')}, " if spec.epochs else ""
    notes = [text.replace("\n", "; ") for text in (about.network, *about.notes) if text]
    lines = [
        f"# {escape_markdown(spec.benchmark)}",
        "",
        f"{trained}{run.images}, {escape_markdown(spec.masks)} masks.",
        f"Made by {_code(about.command)}",
        f"with {escape_markdown('; resumed with '.join(run.versions))},"
        f" on {about.hardware.get('cores')} cores ({escape_markdown(about.hardware.get('machine', ''))}).",
        "",
        *(line for note in notes for line in (escape_markdown(note), "")),
        f"Means over {spec.intervals}, with bootstrap 95 % intervals over {spec.intervals} in brackets{cited}.",
        "The best value of each column is bold. Controls are excluded.",
        "",
        "**In short:**",
        "",
        *(f"- {escape_markdown(line)}" for line in advice(run)),
    ]
    if claims := [(c.claim, f"**{c.verdict}**", escape_markdown(c.figures)) for c in check(run)]:
        lines += _section(heading(run), Table(("claim", "verdict", "evidence"), claims))
    lines += [line for remark in remarks(run) for line in ("", escape_markdown(remark))]
    rows: list[Sequence[Any]] = [
        (line.scenario, line.background, line.method, line.ours, f"{line.published:.2f}", f"{line.difference:+.2f}")
        for line in comparisons(run)
    ]
    if rows:
        source = published()
        sentence = (
            f"Rank accuracy with {source['masks']} masks, on images that every network of the run classifies "
            f"correctly, and the published precision: {source['source']}, ±{source['reading_error']}."
        )
        columns: Sequence[str] = ("scenario", "background", "method", "ours", "published", "difference")
        lines += _section("Beside the published benchmark", Table(columns, rows), sentence)
    metric, places = image_choices(run)
    if places:
        label = escape_markdown(run.metrics[metric]["label"])
        sentence = (
            f"{label} with {escape_markdown(run.masks)} masks, on all test images / on those that all networks of the\n"
            "run with the same task and seed classify correctly."
        )
        columns = ["", *map(escape_markdown, next(iter(places.values())))]
        rows = [
            [escape_markdown(place), *(" / ".join(mean(score, metric) for score in both) for both in scores.values())]
            for place, scores in places.items()
        ]
        lines += _section("All images, or only those classified correctly", Table(columns, rows), sentence)
    for table in tables:
        columns = ["method", *map(escape_markdown, table.labels.values())]
        rows = [[escape_markdown(method), *map(_cell_markdown, cells)] for method, cells in table.rows.items()]
        lines += _section(escape_markdown(table.title), Table(columns, rows))
    return "\n".join(lines) + "\n"


def _section(title: str, table: Table, *sentences: str) -> list[str]:
    above = [line for text in (f"## {title}", *sentences) for line in ("", text)]
    return [*above, "", *table.markdown()]


def _code(text: str) -> str:
    """The text as code, between more backticks than it contains in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{' '.join(text.split()) or '–'}{space}{fence}"


def _cell_markdown(cell: ScoreCell) -> str:
    if cell.ours is None:
        return "–"
    ours = f"**{cell.mean}**" if cell.best else cell.mean
    return " ".join(filter(None, [ours, cell.interval, f"({cell.published})" if cell.published else ""]))
