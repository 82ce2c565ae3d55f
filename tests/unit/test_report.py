"""Reports from a run folder alone. The folder here is written by hand, so that every verdict can be told beforehand."""

import csv
import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save
from typer.testing import CliRunner

from agop.cli.main import cli
from agop.errors import FileError, UnknownNameError
from agop.report.advice import advice
from agop.report.claims import check, remarks
from agop.report.estimate import Estimate, student
from agop.report.formats import registry
from agop.report.page.winner_grids import grids
from agop.report.run import Run, paper
from agop.report.score_tables import tables
from agop.report.terminal import show
from agop.runs.spec import RunSpec

METHODS = tuple(paper()["linear"])
METRICS = {
    "pointing_game": ("PG", True),
    "iou": ("mIoU", True),
    "energy": ("Energy-GT", True),
    "deletion": ("Del", False),
}
SCENARIOS = ("linear", "multiplicative", "translations_rotations", "xor")


def made(folder, change=None, seeds=3, accuracy=0.5):
    """A run whose scores are the paper's, plus a little for each seed; `change` may put others in their place."""
    spec = RunSpec("xai-tris", SCENARIOS, ("uncorrelated", "correlated"), seeds, METHODS, tuple(METRICS))
    spec.save(folder)
    about = {
        "metrics": {name: {"label": label, "higher_is_better": up} for name, (label, up) in METRICS.items()},
        "command": "agop bench xai-tris", "versions": {"agop": "0"}, "hardware": {"cores": 2, "machine": "x"},
    }  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about))
    rows, timings, convergence = [], [], []
    for cell in spec.cells():
        where = {"scenario": cell.scenario, "background": cell.background, "seed": cell.seed}
        chance = accuracy if cell.background == "correlated" else 0.8
        rows.append(where | {"method": "model", "metric": "accuracy", "value": chance, "n": 10})
        for method in METHODS:
            timings.append(where | {"method": method, "metric": "milliseconds", "value": 1.0, "n": 10})
            for metric in METRICS:
                value = max(0, paper()[cell.scenario][method][metric])
                value += min(0.001, value / 20) * cell.seed
                row = where | {"method": method, "metric": metric, "value": value, "n": 10}
                rows.append(row | ((change and change(row)) or {}))
        for step, (right, good) in {100: (0.5, 0.1), 200: (0.8, 0.2), 300: (0.8, 0.3)}.items():
            for method, metric, value in (
                ("model", "accuracy", right),
                ("agop-global", "iou", good + 0.01 * cell.seed),
            ):
                convergence.append(where | {"step": step, "method": method, "metric": metric, "value": value, "n": 10})
    for name, lines in (("rows", rows), ("timings", timings), ("convergence", convergence)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def verdicts(run):
    return {checked.claim: checked.verdict for checked in check(run)}


def test_the_paper_s_own_figures_bear_out_its_claims(tmp_path):
    found = verdicts(made(tmp_path))
    assert len(found) == 11
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("where", "claim"),
    [
        (
            {"scenario": "linear", "method": "agop-weighted", "metric": "iou"},
            "AGOP-Weighted is above IG in mIoU on linear",
        ),
        (
            {"scenario": "linear", "method": "agop-weighted", "metric": "energy"},
            "AGOP-Weighted is above IG in Energy on linear",
        ),
        (
            {"scenario": "multiplicative", "method": "agop-global", "metric": "iou"},
            "AGOP-Global is above IG in mIoU on multiplicative",
        ),
        (
            {"scenario": "multiplicative", "method": "random", "metric": "iou"},
            "IG is below random in mIoU on multiplicative",
        ),
        (
            {"scenario": "translations_rotations", "method": "integrated-gradients", "metric": "iou"},
            "IG is first in mIoU on translations_rotations",
        ),
        ({"scenario": "linear", "method": "vanilla", "metric": "deletion"}, "AGOP-Local is VanillaGrad"),
    ],
)
def test_other_figures_make_a_claim_fail_and_only_that(where, claim, tmp_path):
    low = 0.09 if where["scenario"] == "translations_rotations" else 0.001  # still above AGOP-Global there
    run = made(tmp_path, lambda row: {"value": low} if where.items() <= row.items() else None)
    found = verdicts(run)
    assert [name for name, verdict in found.items() if verdict == "fails"] == [claim]


def test_the_other_claims_fail_too_when_they_should(tmp_path):
    def change(row):
        if row["method"] == "gradcam" and row["metric"] == "pointing_game":
            return {"value": 0.3}
        if row["scenario"] == "translations_rotations" and row["method"] == "agop-global":
            return {"value": 0.4}
        if row["scenario"] == "xor" and row["method"] == "agop-global":
            return {"value": 0.5}
        return None

    found = verdicts(made(tmp_path, change, accuracy=0.7))
    assert sorted(name for name, verdict in found.items() if verdict == "fails") == [
        "AGOP-Global is last in mIoU on translations_rotations",
        "Accuracy is about 50 % on correlated backgrounds",
        "All methods fail on XOR",
        "GradCAM's PG is 0 where positions are fixed",
    ]


def test_seeds_that_disagree_or_are_too_few_decide_nothing(tmp_path):
    def change(row):
        wanted = row["scenario"] == "linear" and row["method"] == "agop-weighted"
        return {"value": (0.1, 0.4, 0.2)[row["seed"]]} if wanted else None

    assert verdicts(made(tmp_path, change))["AGOP-Weighted is above IG in mIoU on linear"] == "undecided"
    (tmp_path / "one").mkdir()
    assert "undecided" in verdicts(made(tmp_path / "one", seeds=1)).values()
    assert "holds" not in {v for k, v in verdicts(Run(tmp_path / "one")).items() if "above" in k}


def test_intervals():
    assert Estimate((0.5,)).interval is None
    low, high = Estimate((0.1, 0.2, 0.3)).interval
    assert low < 0.1 < 0.3 < high
    assert Estimate((0.1, 0.2, 0.3), (0, 0.35)).interval == (0, 0.35)
    assert Estimate((0.2,) * 5).interval == pytest.approx((0.2, 0.2))
    assert Estimate((0.1, 0.2, 0.3)).interval == Estimate((0.1, 0.2, 0.3)).interval


@pytest.mark.parametrize("count", [2, 3, 4, 6, 10, 30, 2500])
def test_a_95_percent_interval_covers_the_truth_95_times_of_100(count):
    random = np.random.default_rng(count)
    ends = [Estimate(tuple(random.normal(0, 1, count))).interval for _ in range(1500 if count < 100 else 500)]
    assert np.mean([low <= 0 <= high for low, high in ends]) == pytest.approx(0.945, abs=0.02)


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 50])
def test_student_s_quantile_is_scipy_s(freedom):
    stats = pytest.importorskip("scipy.stats")
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-5)


def test_differences_are_paired(tmp_path):
    def change(row):
        shift = {"vanilla": 0.0, "agop-local": 0.01}.get(row["method"])
        return None if shift is None else {"value": (0.1, 0.5, 0.9)[row["seed"]] + shift}

    found = made(tmp_path, change).difference("linear", "uncorrelated", "iou", "agop-local", "vanilla")
    assert found.interval == pytest.approx((0.01, 0.01))


def test_tables_have_the_paper_beside_ours_and_the_best_marked(tmp_path):
    table = tables(made(tmp_path))[0]
    assert (table.scenario, table.background) == ("linear", "uncorrelated")
    best = {metric: [m for m, cells in table.rows.items() if cells[metric].best] for metric in table.columns}
    assert best["iou"] == ["agop-weighted"]
    assert best["pointing_game"] == ["integrated-gradients"]
    assert best["deletion"] == ["gradcam"]
    assert table.rows["agop-weighted"]["iou"].paper == 0.314
    assert tables(made(tmp_path))[4].rows["agop-weighted"]["iou"].paper is None


def test_an_undefined_score_is_a_dash_and_not_a_number(tmp_path):
    run = made(tmp_path, lambda row: {"value": None, "n": 0} if row["method"] == "gradcam" else None)
    assert "| gradcam | – | – | – | – |" in registry.get("markdown")(run)


def test_formats_agree_with_the_rows(tmp_path):
    run = made(tmp_path)
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
    assert text.count("\n| AGOP-Local is VanillaGrad | **holds** |") == 1


def test_the_terminal_shows_ours_the_paper_s_and_every_claim(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    show(made(tmp_path), console)
    told = console.file.getvalue()
    row = next(line for line in told.splitlines() if line.startswith("agop-weighted"))
    assert row.split()[1:5] == ["0.643", "0.642", "0.315", "0.314"]
    assert told.count("holds ") == 11


def test_a_narrow_terminal_cuts_nothing_off(tmp_path):
    run = made(tmp_path)
    wide, narrow = (Console(file=io.StringIO(), width=width) for width in (200, 50))
    show(run, wide)
    show(run, narrow)
    assert "…" not in narrow.file.getvalue()
    whole, pieces = (
        [line.split()[1:] for line in told.file.getvalue().splitlines() if line.startswith("integrated-gradients ")]
        for told in (wide, narrow)
    )
    assert len(pieces) > len(whole) == 8
    assert sorted(chain(*pieces)) == sorted(chain(*whole))


STRANGE = r"a|b_$x$ [red]c[/] {d} 50% #1 & <i>\~^"


def test_strange_names_are_shown_as_they_stand(tmp_path):
    run = made(tmp_path, lambda row: {"method": STRANGE} if row["method"] == "vanilla" else None)
    replace(run.spec, methods=(STRANGE, "gradcam")).save(tmp_path)
    run = Run(tmp_path)
    console = Console(file=io.StringIO(), width=200)
    show(run, console)
    assert console.file.getvalue().count(STRANGE) >= 8
    row = next(line for line in registry.get("markdown")(run).splitlines() if line.startswith(r"| a\|"))
    assert row.startswith(r"| a\|b\_$x$ [red]c[/] {d} 50% #1 & \<i>\\~^ | ")
    line = next(line for line in registry.get("latex")(run).splitlines() if line.startswith("a|b"))
    told = r"a|b\_\$x\$ [red]c[/] \{d\} 50\% \#1 \& <i>\textbackslash{}\textasciitilde{}\textasciicircum{} & "
    assert line.startswith(told)


def test_the_command_writes_a_file_without_torch(tmp_path):
    made(tmp_path)
    for name in ("html", "markdown", "csv", "latex", "json"):
        code = f"import sys; sys.argv = ['agop', 'report', {str(tmp_path)!r}, '--format', {name!r}, '--out', \
{str(tmp_path / name)!r}]\nfrom agop.cli.main import cli\ncli(standalone_mode=False)\nassert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert (tmp_path / name).read_text() == registry.get(name)(Run(tmp_path))


def command(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)


def test_the_page_is_the_default_and_an_ending_names_its_format(tmp_path):
    run = made(tmp_path)
    assert command("report", tmp_path).stdout == f"wrote {tmp_path / 'index.html'}\n"
    assert (tmp_path / "index.html").read_text() == registry.get("html")(run)
    assert command("report", tmp_path, "--format", "csv").stdout == registry.get("csv")(run)
    for ending, name in (("md", "markdown"), ("tex", "latex"), ("json", "json"), ("html", "html")):
        assert command("report", tmp_path, "--out", tmp_path / f"it.{ending}").exit_code == 0
        assert (tmp_path / f"it.{ending}").read_text() == registry.get(name)(run)


def scored(values):
    """A change that gives these mIoUs by scenario and method, others 0.1; a number, or one for each seed."""

    def change(row):
        if row["metric"] != "iou":
            return None
        found = values.get(row["scenario"], {}).get(row["method"], 0.1)
        return {"value": found[row["seed"]] if isinstance(found, tuple) else found}

    return change


def test_the_advice_names_the_best_of_each_group_and_its_lead(tmp_path):
    values = {
        "linear": {"agop-weighted": (0.40, 0.42, 0.44), "integrated-gradients": (0.30, 0.31, 0.32), "random": 0.05},
        "multiplicative": {"agop-weighted": (0.40, 0.42, 0.44), "integrated-gradients": 0.2, "random": 0.05},
        "translations_rotations": {"integrated-gradients": 0.5, "smoothgrad": (0.28, 0.30, 0.32), "random": 0.05},
        "xor": {
            "smoothgrad": (0.32, 0.28, 0.32),
            "vanilla": (0.28, 0.32, 0.28),
            "agop-local": (0.28, 0.32, 0.28),
            "random": 0.05,
        },
    }
    told = advice(made(tmp_path, scored(values)))
    still, moving, together = told.split("; ")
    assert still.startswith(
        "By mIoU on uncorrelated backgrounds, where the signal stands still (linear, multiplicative), "
        "take agop-weighted: mIoU 0.42 on average, ahead of integrated-gradients by 0.165 ["  # (0.11 + 0.22) / 2
    )
    assert moving.startswith("where it moves (translations_rotations), take integrated-gradients: mIoU 0.50, ahead of")
    assert "smoothgrad by 0.200 [0.146, 0.254]" in moving
    assert together.startswith("where only the combination tells (xor), there is no clear winner: ")
    assert "smoothgrad 0.31 and vanilla 0.29 in mIoU cannot be told apart" in together
    assert "agop-local" not in told
    for form in ("markdown", "json"):
        assert told in registry.get(form)(Run(tmp_path))
    console = Console(file=io.StringIO(), width=200)
    show(Run(tmp_path), console)
    assert told in console.file.getvalue()


def test_the_advice_ignores_correlated_backgrounds(tmp_path):
    def change(row):
        better = "gradcam" if row["background"] == "correlated" else "smoothgrad"
        return {"value": 0.9 if row["method"] == better else 0.1}

    told = advice(made(tmp_path, change))
    assert "gradcam" not in told
    assert told.count("take smoothgrad") == 3


def test_the_advice_says_when_what_knows_nothing_is_as_good(tmp_path):
    beaten = {"agop-global": [0.3, 0.4, 0.3], "vanilla": [0.1, 0.1, 0.1], "centre": [0.5, 0.6, 0.5]}
    told = advice(clevr(tmp_path / "a", beaten))
    assert told.startswith("By iou, agop-global is first with iou 0.33, ahead of vanilla by 0.233 [")
    assert "what knows nothing of the model is above it: centre (0.53)" in told
    assert "take" not in told
    level = {"agop-global": [0.3, 0.4, 0.3], "vanilla": [0.1, 0.1, 0.1], "random": [0.4, 0.3, 0.3]}
    assert "cannot be told from what knows nothing of the model: random (0.33)" in advice(clevr(tmp_path / "b", level))


def test_one_training_gives_no_advice_beyond_its_figures(tmp_path):
    told = advice(made(tmp_path, seeds=1))
    assert "one training cannot tell" in told
    assert "take" not in told


def test_of_a_score_that_should_be_low_the_lowest_is_taken(tmp_path):
    made(tmp_path, lambda row: {"value": 0.2 if row["method"] == "gradcam" else 0.7})
    spec = json.loads((tmp_path / "spec.json").read_text()) | {"metrics": ["deletion"]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert "take gradcam: Del 0.20 on average, ahead of vanilla by 0.500" in advice(Run(tmp_path))


def test_what_is_no_run(tmp_path):
    with pytest.raises(FileError, match="not a run folder: give one"):
        Run(tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'markdown'"):
        registry.get("markdwn")
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(FileError, match="not a run folder"):
        Run(tmp_path)


def test_claims_about_scores_that_are_not_there_are_undecided(tmp_path):
    run = made(tmp_path, lambda row: {"value": None} if row["metric"] == "iou" else None)
    assert verdicts(run)["IG is first in mIoU on translations_rotations"] == "undecided"


def test_no_method_is_first_among_fewer_than_the_paper_s(tmp_path):
    """Best of three is not best of all."""
    made(tmp_path)
    spec = json.loads((tmp_path / "spec.json").read_text())
    spec["methods"] = ["random", "vanilla", "integrated-gradients"]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert verdicts(Run(tmp_path))["IG is first in mIoU on translations_rotations"] == "undecided"


def clevr(folder, scores):
    """A CLEVR-XAI run of one seed with these scores (N,) of each method, in all metrics."""
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("drawn",), 1, tuple(scores), ("iou", "energy"), "all_objects",
        intervals="samples", sensitivity=("integrated-gradients@black",), sensitivity_images=2,
    )  # fmt: skip
    spec.save(folder)
    about = {
        "metrics": {name: {"label": name, "higher_is_better": True} for name in spec.metrics}, "command": "agop",
        "versions": {}, "hardware": {"cores": 2, "machine": "x"}, "network": "a network", "notes": ["kept: 3"],
    }  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about))
    where = {"scenario": "clevr-xai", "background": "drawn", "seed": 0, "masks": "all_objects"}
    rows = [where | {"method": "masks", "metric": "coverage", "value": 0.162, "n": 9}]
    samples = {}
    for method, values in (scores | {"integrated-gradients@black": [0.5, 0.7]}).items():
        for metric in spec.metrics:
            rows.append(where | {"method": method, "metric": metric, "value": float(np.nanmean(values)), "n": 3})
            samples[f"all_objects/{method}/{metric}"] = np.array(values)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("timings", "convergence"):
        (folder / f"{name}.jsonl").write_text(json.dumps(where | {"method": "m", "metric": "n", "value": 1}) + "\n")
    (folder / "cells" / "clevr-xai-drawn-000").mkdir(parents=True)
    (folder / "cells" / "clevr-xai-drawn-000" / "scores.safetensors").write_bytes(save(samples))
    return Run(folder)


def test_over_samples_differences_are_paired_where_both_are_defined(tmp_path):
    run = clevr(tmp_path, {"agop-global": [0.3, 0.41, math.nan], "integrated-gradients": [0.1, 0.2, 0.9]})
    difference = run.difference("clevr-xai", "drawn", "iou", "agop-global", "integrated-gradients")
    assert difference.values == pytest.approx((0.2, 0.21))
    assert verdicts(run)["AGOP-Global is above IG in mIoU"] == "holds"
    assert verdicts(run)["AGOP-Weighted is above IG in mIoU"] == "undecided"


def test_the_report_says_if_agop_global_is_no_better_than_a_control(tmp_path):
    even = clevr(tmp_path / "even", {"agop-global": [0.3, 0.31], "centre": [0.3, 0.31], "mean-mask": [0.1, 0.1]})
    (told,) = remarks(even)
    assert "centre in iou" in told
    assert "mean-mask" not in told
    assert told in registry.get("markdown")(even)
    better = clevr(tmp_path / "better", {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]})
    assert remarks(better) == []


def test_a_clevr_report_has_its_variants_and_notes_in_every_form(tmp_path):
    run = clevr(tmp_path, {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]})
    for form in ("markdown", "csv", "json", "latex"):
        assert "integrated-gradients@black" in registry.get(form)(run)
    text = registry.get("markdown")(run)
    assert "a network" in text
    assert "kept: 3" in text
    assert "all_objects masks on 16.2% of the pixels" in text
    assert r"16.2\% of the pixels" in registry.get("latex")(run)


def test_a_score_of_few_samples_is_never_the_best(tmp_path):
    """GradCAM++ is ahead of all, on the few samples of which it has a map at all."""

    def change(row):
        if row["method"] == "gradcam++" and row["scenario"] == "linear" and row["metric"] == "iou":
            return {"value": 0.99, "n": 4}
        return None

    run = made(tmp_path, change)
    table = next(t for t in tables(run) if (t.scenario, t.background) == ("linear", "uncorrelated"))
    assert table.rows["gradcam++"]["iou"].ours.mean == pytest.approx(0.99)
    assert not table.rows["gradcam++"]["iou"].best
    assert sum(cells["iou"].best for cells in table.rows.values()) >= 1
    assert "gradcam++" not in advice(run).split(";")[0]


def test_an_undecided_rank_names_who_leaves_it_so(tmp_path):
    """IG is far ahead of all but one, of which it cannot be told apart."""

    def change(row):
        if (row["scenario"], row["metric"], row["method"]) == ("translations_rotations", "iou", "smoothgrad"):
            return {"value": 0.5 + 0.1 * (row["seed"] - 1)}
        if (row["scenario"], row["metric"], row["method"]) == ("translations_rotations", "iou", "integrated-gradients"):
            return {"value": 0.51}
        return None

    (found,) = [c for c in check(made(tmp_path, change)) if c.claim.startswith("IG is first in mIoU")]
    assert found.verdict == "undecided"
    assert found.figures.startswith("integrated-gradients over smoothgrad: 0.010 [")


def own(folder, scores):
    """An evaluation of one metric, from each method's score a sample; NaN where it is undefined."""
    spec = RunSpec(
        "evaluation", ("linear",), ("given",), 1, tuple(scores), ("iou",), epochs=0, test_images=100,
        intervals="samples",
    )  # fmt: skip
    spec.save(folder)
    (cell,) = spec.cells()
    place = folder / "cells" / cell.name
    place.mkdir(parents=True)
    about = {"metrics": {"iou": {"label": "mIoU", "higher_is_better": True}}, "command": "agop"}
    (folder / "about.json").write_text(json.dumps(about | {"versions": {}, "hardware": {"cores": 2, "machine": "x"}}))
    (place / "scores.safetensors").write_bytes(save({f"true/{m}/iou": np.asarray(v) for m, v in scores.items()}))
    where = {"scenario": "linear", "background": "given", "seed": 0, "masks": "true", "metric": "iou"}
    rows = [
        where | {"method": m, "value": float(np.nanmean(v)), "n": int(np.isfinite(v).sum())} for m, v in scores.items()
    ]
    for name, lines in (("rows", rows), ("timings", rows), ("convergence", [])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def test_a_method_that_is_defined_on_the_easy_samples_alone_does_not_win(tmp_path):
    random = np.random.default_rng(0)
    easy = np.where(np.arange(100) < 60, 0.8, 0.2) + random.normal(0, 0.01, 100)
    run = own(tmp_path, {"vanilla": np.where(np.arange(100) < 60, easy, np.nan), "smoothgrad": easy + 0.05})
    assert advice(run) == "By mIoU, take smoothgrad: mIoU 0.61, ahead of vanilla by 0.050 [0.050, 0.050]."
    (grid,) = [grid for grid in grids(run) if grid.metric == "iou"]
    assert [square.mark for square in grid.lines["linear / given"]] == ["", "★"]


def test_nobody_is_to_be_taken_while_a_third_cannot_be_told_from_it(tmp_path):
    random = np.random.default_rng(0)
    base = random.uniform(0.3, 0.7, 100)
    run = own(
        tmp_path,
        {"vanilla": base, "smoothgrad": base - 0.01, "gradcam": base - 0.02 + random.normal(0, 0.4, 100)},
    )
    assert "no clear winner" in advice(run)
    assert "vanilla" in advice(run)
    assert "gradcam" in advice(run)


def test_the_paper_s_figures_stand_beside_its_own_benchmarks_alone(tmp_path):
    (table,) = tables(own(tmp_path, {"vanilla": np.linspace(0, 1, 100)}))
    assert table.scenario == "linear"
    assert table.rows["vanilla"]["iou"].paper is None


def test_intervals_of_many_values_are_those_of_fewer_and_take_no_gigabytes():
    values = np.random.default_rng(0).gamma(2.0, size=2001)
    drawn, normal = Estimate(tuple(values[:2000])), Estimate(tuple(values))
    assert normal.interval == pytest.approx(drawn.interval, abs=0.005)
