"""Write docs/results.md and docs/results/BENCHMARK.md from the run folders of `make results`.

    python docs/make_results.py RUNS DOCS

RUNS has some of the runs in PAGES and EXTRA, and patch-speed.json. Pages, tables and lines of missing runs are kept as
they are in DOCS.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agop.report.claims import FAILS, HOLDS, UNDECIDED, check
from agop.report.folder import is_control
from agop.report.formats import markdown
from agop.report.run import Run, comparisons, paper, published
from agop.stats import Ratio

FIXED = ("linear", "multiplicative")
CLEAN = "uncorrelated"
# Runs with a page, by the name of its file, and runs without one.
PAGES = {
    "xai-tris-10": "xai-tris", "xai-tris-agop": "xai-tris-agop", "xai-tris-64": "xai-tris-64", "composite": "composite",
    "clevr-xai": "clevr-xai",
}  # fmt: skip
# Runs of `agop bench shortcuts` on one page, with a heading for each but the first.
SHORTCUTS = {"shortcuts": "", "watermark": "## A watermark on cats and dogs"}
EXTRA = ("xor-signed", "xor-once", "xai-tris-untrained", "composite-untrained")
MOST_UNTRAINED = 1.5
# Lines of a page.
MOST_LINES = 250
# The tables of docs/results.md, in order.
TABLES = ("TRUTHS", "ACCURACY", "RESTARTS", "DIFFERENCES", "BARS", "EVERYWHERE", "SIGNED", "CONVERGENCE")


def write_parts(folder: Path, name: str, text: str) -> None:
    """Write a page, and the sections that don't fit into it as NAME-2.md, NAME-3.md …"""
    parts = [""]
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        if parts[-1].count("\n") + section.count("\n") > MOST_LINES:
            parts.append(f"# {name}, part {len(parts) + 1}\n\n")
        parts[-1] += section
    for number, part in enumerate(parts, 1):
        (folder / f"{name}{'' if number == 1 else f'-{number}'}.md").write_text(part, encoding="utf-8")


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]


def mean(run: Run, scenario: str, background: str, method: str, metric: str, masks: str = "") -> str:
    """A mean with three decimals, or a dash."""
    estimate = run.estimate(scenario, background, method, metric, masks)
    return "–" if estimate is None else f"{estimate.mean:.3f}"


def truths_table(run: Run) -> list[str]:
    """PG and AP under both ground truths, where they differ."""
    head = ["method", *(f"{scenario}: {label}, own / union" for scenario in FIXED for label in ("PG", "AP"))]
    lines = [
        [method]
        + [
            " / ".join(mean(run, scenario, CLEAN, method, metric, kind) for kind in ("own", "union"))
            for scenario in FIXED
            for metric in ("pointing_game", "average_precision")
        ]
        for method in run.spec.methods
    ]
    return grid(head, lines)


def accuracy_table(run: Run) -> list[str]:
    """Accuracy of each network, the number of networks that didn't learn, and the mean number of trainings."""
    lines = []
    for scenario in run.spec.scenarios:
        for background in run.spec.backgrounds:
            every, missed = run.with_all_networks(), len(run.not_learned(scenario, background))
            accuracy = run.estimate(scenario, background, "model", "accuracy")
            first = every.estimate(scenario, background, "model", "first_accuracy")
            attempts = every.estimate(scenario, background, "model", "attempts")
            lines.append(
                [scenario, background, str(first or "–"), f"{attempts.mean:.1f}" if attempts else "–",
                 f"{missed} of {run.spec.seeds}", str(accuracy or "–")]
            )  # fmt: skip
    first = "accuracy of the first training (validation; after 40 % of its epochs if restarted)"
    head = ["scenario", "background", first, "trainings", "not learned", "accuracy of those that learned (test)"]
    return grid(head, lines)


def restarts_table(once: Run, again: Run) -> list[str]:
    """Scores on xor (mIoU, AP): all networks of one training each, and those that learned, some after a restart."""
    lines = [
        [method]
        + [
            str(run.estimate("xor", CLEAN, method, metric) or "–")
            for metric in ("iou", "average_precision")
            for run in (once.with_all_networks(), again)
        ]
        for method in again.spec.methods
    ]
    head = ["method", *(f"{label}, {rule}" for label in ("mIoU", "AP") for rule in ("without", "with"))]
    return grid(head, lines)


def signed_table(true: Run, signed: Run) -> list[str]:
    """PG, mIoU and Energy on xor: own masks, signed masks, and the paper."""
    metrics = ("pointing_game", "iou", "energy")
    lines = []
    for method in signed.spec.methods:
        ours = [" / ".join(mean(run, "xor", CLEAN, method, m) for m in metrics) for run in (true, signed)]
        figures = paper()["xor"].get(method, {})
        lines.append([method, *ours, " / ".join(f"{figures[m]:.3f}" if m in figures else "–" for m in metrics)])
    return grid(["method", "own masks", "signed masks", "the paper"], lines)


def differences(run: Run, least: float = 0.1) -> list[str]:
    """Our values that differ from the published ones by more than `least` beyond the reading error."""
    lines = [
        [c.scenario, c.background, c.method, str(c.ours), f"{c.published:.2f}", f"{c.difference:+.2f}"]
        for c in comparisons(run)
        if abs(c.difference) > least
    ]
    return grid(["scenario", "background", "method", "ours", "published", "difference"], lines)


def convergence_table(run: Run, background: str) -> list[str]:
    """Table of accuracy and mIoU of the AGOP methods at seven steps, means over seeds."""
    steps = sorted({row["step"] for row in run.convergence})
    columns = [steps[round(k * (len(steps) - 1) / 6)] for k in range(7)]
    lines = []
    for scenario in run.spec.main_scenarios:
        for method, metric in (("model", "accuracy"), ("agop-global", "iou"), ("agop-weighted", "iou")):
            cells = []
            for step in columns:
                values = [
                    row["value"] for row in run.convergence
                    if (row["scenario"], row["background"], row["step"]) == (scenario, background, step)
                    and (row["method"], row["metric"]) == (method, metric) and row["value"] is not None
                ]  # fmt: skip
                cells.append(f"{sum(values) / len(values):.3f}" if values else "–")
            lines.append([scenario, f"{method} {metric}", *cells])
    return grid(["scenario", "", *map(str, columns)], lines)


def bars_table(runs: Sequence[Run], speed: Sequence[dict[str, Any]]) -> list[str]:
    """What agop reaches beside its bars, with 95 % intervals over seeds or samples."""
    lines = [line for run in runs for line in (untrained_lines(run) if run.spec.epochs == 0 else bar_lines(run))]
    lines += [
        ["speed", line["what"], f"bar {line['bar']:g}: {line['ratio']:.2f}", HOLDS if line["holds"] else FAILS]
        for line in speed
    ]
    return grid(["benchmark", "what", "measured", "verdict"], lines)


def bar_lines(run: Run) -> list[list[str]]:
    """A line for each claim about agop and kind of masks."""
    lines = []
    for claim in check(run):
        what = claim.claim.removeprefix("Beyond the paper: ")
        for kind, figures in claim.evidence.items() if what != claim.claim else ():
            own = f"{what} ({kind} masks)" if len(claim.evidence) > 1 else what
            lines.append([run.spec.benchmark, own, figures, claim.verdicts[kind]])
    return lines


def untrained_lines(run: Run) -> list[list[str]]:
    """A line for each scenario with networks that have random weights."""
    return [
        [run.spec.benchmark, f"random weights, {scenario}: AP of agop ÷ AP of random", *untrained(run, scenario)]
        for scenario in run.spec.main_scenarios
    ]


def untrained(run: Run, scenario: str) -> list[str]:
    """AP of agop divided by that of random on networks with random weights, and whether it is at most 1.5."""
    own, chance = (
        tuple(run.values(scenario, run.spec.backgrounds[0], method, "average_precision").values())
        for method in ("agop", "random")
    )
    ratio = Ratio(own, chance)
    low, high = ratio.interval or (-math.inf, math.inf)
    return [f"bar 1.5: {ratio}", HOLDS if high <= MOST_UNTRAINED else FAILS if low > MOST_UNTRAINED else UNDECIDED]


def everywhere_table(runs: dict[str, Run]) -> list[str]:
    """AP of every method on every task of the main networks, with the controls below."""
    tasks = [
        (name, run, scenario, background, kind)
        for name, run in runs.items()
        for scenario, background, kind in run.places
        if scenario in run.spec.main_scenarios and background != "correlated" and kind not in ("grid cell",)
    ]
    tasks = [
        task
        for task in tasks
        if any(task[1].values(*task[2:4], m, "average_precision", task[4]) for m in task[1].spec.methods)
    ]
    methods = list(dict.fromkeys(method for run in runs.values() for method in run.spec.methods if "@" not in method))
    ordered = [m for m in methods if not is_control(m)] + [m for m in methods if is_control(m)]
    lines = [
        [scenario, background, kind, *(mean(run, scenario, background, m, "average_precision", kind) for m in ordered)]
        for _, run, scenario, background, kind in tasks
    ]
    return grid(["scenario", "background", "masks", *ordered], lines)


def earlier_parts(page: str) -> dict[str, list[str]]:
    """The parts of an earlier docs/results.md that come from runs."""
    tables = [table.rstrip().split("\n") for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)]
    command = re.findall(r"^(`agop bench xai-tris .*--masks signed.*`)\.$", page, re.MULTILINE)
    return dict(zip(TABLES, tables, strict=True)) | {"SIGNED COMMAND": command}


def merged(earlier: list[str], table: list[str], keys: int) -> list[str]:
    """A table with the lines of an earlier one that it lacks. The first `keys` columns identify a line."""
    parts = [[[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines] for lines in (earlier, table)]
    head = list(dict.fromkeys([*parts[0][0], *parts[1][0]]))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for names, _, *rows in parts:
        lines |= {tuple(row[:keys]): dict(zip(names, row, strict=True)) for row in rows}
    return grid(head, [[line.get(name, "–") for name in head] for line in lines.values()])


def parts_of(runs: dict[str, Run]) -> dict[str, list[str]]:
    """The parts of docs/results.md that need runs which are there."""
    parts: dict[str, list[str]] = {}
    if tris := runs.get("xai-tris-10"):
        parts |= {"TRUTHS": truths_table(tris), "ACCURACY": accuracy_table(tris), "DIFFERENCES": differences(tris)}
        parts |= {"CONVERGENCE": convergence_table(tris, CLEAN)}
        if once := runs.get("xor-once"):
            parts |= {"RESTARTS": restarts_table(once, tris)}
        if signed := runs.get("xor-signed"):
            parts |= {"SIGNED": signed_table(tris, signed), "SIGNED COMMAND": [f"`{signed.about.command}`"]}
    return parts


def overview(page: str, runs: dict[str, Run], speed: list[dict[str, Any]]) -> str:
    """The text of docs/results.md around its tables, from an earlier page and the runs."""
    about, earlier = published(), earlier_parts(page)
    text = Path(__file__).with_name("results_text.md").read_text(encoding="utf-8")
    everywhere = everywhere_table({name: runs[name] for name in PAGES if name in runs and name != "xai-tris-10"})
    parts = earlier | parts_of(runs)
    parts |= {
        "SOURCE": [f"{about['source']}, ±{about['reading_error']}"],
        "BARS": merged(earlier["BARS"], bars_table(list(runs.values()), speed), 2),
        "EVERYWHERE": merged(earlier["EVERYWHERE"], everywhere, 3),
    }
    for name, lines in parts.items():
        if f"{{{name}}}" not in text:
            raise SystemExit(f"docs/results_text.md has no place for {name}")
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    return text


def shortcuts_page(folder: Path) -> str:
    """The reports of planted shortcuts."""
    parts = []
    for name, heading in SHORTCUTS.items():
        if (report := folder / name / "report.md").exists():
            text = report.read_text(encoding="utf-8")
            parts.append(text if not heading else text.replace("# shortcuts", heading, 1))
    return "\n".join(parts)


def cutouts_page(reports: Sequence[Path]) -> str:
    """The reports of cut-outs, a heading per network."""
    lines = [
        "# Cut-outs on photographs",
        "",
        "What this is: [benchmarks](../benchmarks.md#cut-outs-on-photographs).",
        "",
    ]
    return "\n".join([*lines, *(re.sub(r"^#", "##", path.read_text(), flags=re.MULTILINE) for path in reports)])


def main() -> None:
    """Write the overview and a page per benchmark."""
    folder, docs = Path(sys.argv[1]), Path(sys.argv[2])
    speed = json.loads((folder / "patch-speed.json").read_text()) if (folder / "patch-speed.json").exists() else []
    runs = {name: Run(folder / name) for name in (*PAGES, *EXTRA) if (folder / name).exists()}
    (docs / "results").mkdir(exist_ok=True)
    for name, page in PAGES.items():
        if name not in runs:
            continue
        run = runs[name]
        background = run.spec.backgrounds[0]
        more = [
            "",
            "## Convergence",
            "",
            "On validation data, by training step.",
            "",
            *convergence_table(run, background),
        ]
        text = markdown(run) + "\n".join(more) + "\n"
        write_parts(docs / "results", page, text)
    if (folder / "shortcuts" / "report.md").exists():
        (docs / "results" / "shortcuts.md").write_text(shortcuts_page(folder), encoding="utf-8")
    if reports := sorted(folder.glob("cutouts-*/report.md")):
        (docs / "results" / "cutouts.md").write_text(cutouts_page(reports), encoding="utf-8")
    page = docs / "results.md"
    page.write_text(overview(page.read_text(encoding="utf-8"), runs, speed), encoding="utf-8")


if __name__ == "__main__":
    main()
