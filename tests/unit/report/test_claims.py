"""What a report says of runs whose scores are known: claims, advice, tables, and which networks and images count."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest

from agop.report import claims
from tests.command import error_of
from tests.report_runs import (
    METHODS,
    change_spec,
    report,
    write_clevr,
    write_evaluation,
    write_networks,
    write_xai_tris,
)  # fmt: skip


def verdicts(run):
    """The verdict on each claim, the same under all ground truths."""
    return {checked["claim"]: "/".join(set(checked["verdicts"].values())) for checked in report(run)["claims"]}


def place_of(row):
    return f"{row['scenario']} {row['method']} {row['metric']}"


def test_all_claims_hold_for_the_papers_own_scores(tmp_path):
    run = write_xai_tris(tmp_path)
    assert list(verdicts(run).values()) == 11 * ["holds"]
    assert report(run)["remarks"] == ["With 3 seeds the intervals are wide: --seeds 10 decides more claims."]


@pytest.mark.parametrize(
    ("place", "value", "claim"),
    [
        ("linear agop-weighted iou", 0.001, "AGOP-Weighted beats IG in mIoU on linear"),
        ("linear agop-weighted energy", 0.001, "AGOP-Weighted beats IG in Energy on linear"),
        ("linear vanilla deletion", 0.001, "AGOP-Local equals VanillaGrad"),
        ("linear gradcam pointing_game", 0.3, "GradCAM's PG is 0 where positions are fixed"),
        ("multiplicative agop-global iou", 0.001, "AGOP-Global beats IG in mIoU on multiplicative"),
        ("multiplicative random iou", 0.001, "IG scores below random in mIoU on multiplicative"),
        # Still above AGOP-Global there.
        ("translations_rotations integrated-gradients iou", 0.09, "IG ranks first in mIoU on translations_rotations"),
        ("translations_rotations agop-global iou", 0.3, "AGOP-Global ranks last in mIoU on translations_rotations"),
        ("xor agop-global iou", 0.5, "All methods fail on XOR"),
        ("accuracy", 0.7, "Accuracy is about 50 % on correlated backgrounds"),
    ],
)
def test_changed_scores_make_only_their_claim_fail(place, value, claim, tmp_path):
    accuracy = value if place == "accuracy" else 0.5
    run = write_xai_tris(
        tmp_path, lambda row: {"value": value} if place_of(row) == place else None, accuracy=accuracy
    )  # fmt: skip
    assert [name for name, verdict in verdicts(run).items() if verdict == "fails"] == [claim]


def test_claims_are_undecided_with_one_seed_or_disagreeing_seeds_or_undefined_scores(tmp_path):
    def change(row):
        if row["scenario"] == "linear" and row["method"] == "agop-weighted":
            return {"value": (0.1, 0.4, 0.2)[row["seed"]]}
        return {"value": None} if row["scenario"] != "linear" and row["metric"] == "iou" else None

    results = verdicts(write_xai_tris(tmp_path / "three", change))
    assert results["AGOP-Weighted beats IG in mIoU on linear"] == "undecided"
    assert results["IG ranks first in mIoU on translations_rotations"] == "undecided"
    results = verdicts(write_xai_tris(tmp_path / "one", seeds=1))

    others = ("AGOP-Local equals VanillaGrad", "diag(M) improves after accuracy has levelled off")  # over scenarios
    assert {verdict for claim, verdict in results.items() if claim not in others} == {"undecided"}


@pytest.mark.parametrize("seeds", [3, 6])
def test_claims_about_equal_methods_rarely_fail(seeds, tmp_path):
    """Seven rivals are seven chances to be ahead, and the best of eight methods is often above the bar."""
    run, random, fails = write_xai_tris(tmp_path, seeds=seeds), np.random.default_rng(0), Counter()
    for _ in range(200):
        drawn = dict(zip(METHODS, random.normal(0.01, 0.001, (len(METHODS), seeds)), strict=True)) | {
            "model": [0.5] * 9
        }
        run.values = lambda scenario, background, method, metric, masks=None: dict(enumerate(drawn[method]))  # noqa: B023
        fails += Counter(checked.claim for checked in claims.check(run) if checked.verdict == "fails")
    ranked = [
        fails[f"{name} in mIoU on translations_rotations"] for name in ("IG ranks first", "AGOP-Global ranks last")
    ]
    assert max(*ranked, fails["All methods fail on XOR"]) <= 0.05 * 200


def test_networks_that_were_stopped_early_do_not_show_that_accuracy_stays_at_chance(tmp_path):
    """They count with their accuracy after 40 % of the epochs: more epochs may raise it, so only "fails" is certain."""

    def write(name, attempts, accuracy):
        facts = {"first_accuracy": accuracy, "attempts": attempts}
        run = write_xai_tris(tmp_path / name, scenarios=("linear",), facts=facts)
        claim = "Accuracy is about 50 % on correlated backgrounds"
        (checked,) = [each for each in report(change_spec(run, restarts=5))["claims"] if each["claim"] == claim]
        return checked["verdicts"]["true"], checked["evidence"]["true"]

    assert write("whole", 1, 0.5) == ("holds", "0.500 [0.500, 0.500]")
    verdict, evidence = write("stopped", 2, 0.5)
    assert verdict == "undecided"
    assert evidence.endswith("3 trainings stopped after 40 % of the epochs: decide it with --restarts 0")
    assert write("above", 2, 0.7)[0] == "fails"


def test_claims_about_missing_methods_are_counted_in_a_remark(tmp_path):
    """Ranking first needs all methods of the paper."""
    run = change_spec(write_xai_tris(tmp_path), methods=("random", "vanilla", "integrated-gradients"))
    assert list(verdicts(run)) == [
        "IG scores below random in mIoU on multiplicative",
        "Accuracy is about 50 % on correlated backgrounds",
        "diag(M) improves after accuracy has levelled off",
        "All methods fail on XOR",
    ]
    missing = "Not checked: 7 claims of the paper, about methods or scenarios that this run doesn't have."
    assert missing in report(run)["remarks"]
    assert missing in report(run, "markdown")


def test_an_undecided_ranking_names_the_decisive_rival(tmp_path):
    """IG is far ahead of every method except one, from which it isn't significantly different."""

    def change(row):
        value = {
            "translations_rotations smoothgrad iou": 0.5 + 0.1 * (row["seed"] - 1),
            "translations_rotations integrated-gradients iou": 0.51,
        }.get(place_of(row))
        return None if value is None else {"value": value}

    claims = report(write_xai_tris(tmp_path, change))["claims"]
    (checked,) = [claim for claim in claims if claim["claim"].startswith("IG ranks first in mIoU")]
    assert checked["verdicts"] == {"true": "undecided"}
    assert checked["evidence"]["true"].startswith("integrated-gradients over smoothgrad: 0.010 [")


def test_clevr_claims_compare_samples_where_both_are_defined(tmp_path):
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.41, math.nan], "integrated-gradients": [0.1, 0.2, 0.9]})
    difference = run.difference("clevr-xai", "drawn", "iou", "agop-global", "integrated-gradients")
    assert difference.values == pytest.approx((0.2, 0.21))
    assert verdicts(run)["AGOP-Global beats IG in mIoU"] == "holds"
    assert "AGOP-Weighted beats IG in mIoU" not in verdicts(run)


def test_a_remark_says_if_agop_global_is_no_better_than_a_control(tmp_path):
    even = write_clevr(tmp_path / "even", {"agop-global": [0.3, 0.31], "centre": [0.3, 0.31], "mean-mask": [0.1, 0.1]})
    remark, _ = report(even)["remarks"]  # the other one counts the claims about methods that the run doesn't have
    assert "centre in mIoU" in remark
    assert "mean-mask" not in remark
    assert remark in report(even, "markdown")
    scores = {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]}
    assert not any("centre" in remark for remark in report(write_clevr(tmp_path / "better", scores))["remarks"])


@pytest.mark.parametrize(("factor", "verdict"), [(1.4, "holds"), (1.25, "undecided"), (1.1, "fails")])
def test_agop_is_compared_with_the_best_of_the_papers_methods(factor, verdict, tmp_path):
    """IG is the best of them on average; another method, and a control, are better and don't count."""
    best = [0.4, 0.5, 0.6, 0.5]
    noise = [0.01, -0.01, 0.02, -0.02]
    scores = {key: [0.1, 0.9, 0.1, 0.1] for key in METHODS} | {"integrated-gradients": best}
    scores["agop"] = [factor * value + more for value, more in zip(best, noise, strict=True)]
    scores |= dict.fromkeys(("agop-patch", "sobel"), [0.95] * 4)
    claims = report(write_clevr(tmp_path, scores, ("average_precision",)))["claims"]
    (checked,) = [claim for claim in claims if "Beyond" in claim["claim"]]
    assert [*checked["verdicts"].values()] == [verdict]
    assert checked["evidence"]["all_objects"].startswith(f"bar 1.25: clevr-xai {factor:.3f} [")


def test_claim_about_agop_needs_all_of_the_papers_methods(tmp_path):
    scores = {key: [0.4, 0.5] for key in ("agop", "vanilla")}
    assert not [c for c in verdicts(write_clevr(tmp_path, scores, ("average_precision",))) if "Beyond" in c]


def advice(run):
    return "\n".join(report(run)["advice"])


def set_iou(values):
    """A change to these mIoUs by scenario and method, 0.1 elsewhere; a number, or one per seed."""

    def change(row):
        if row["metric"] != "iou":
            return None
        value = values.get(row["scenario"], {}).get(row["method"], 0.1)
        return {"value": value[row["seed"]] if isinstance(value, tuple) else value}

    return change


def test_advice_names_the_best_method_of_each_group_and_its_lead(tmp_path):
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
    text = advice(write_xai_tris(tmp_path, set_iou(values)))
    fixed, moving, combined = text.split("\n")
    assert fixed.startswith(
        "Fixed signal (linear, multiplicative; uncorrelated): "
        "use agop-weighted: mIoU 0.42 on average, ahead of integrated-gradients by 0.165 ["  # (0.11 + 0.22) / 2
    )
    assert moving.startswith(
        "Moving signal (translations_rotations; uncorrelated): use integrated-gradients: mIoU 0.50"
    )
    assert "smoothgrad by 0.200 [0.146, 0.254]" in moving
    assert combined == (
        "Combination of pixels (xor; uncorrelated): no clear winner among smoothgrad 0.31 and vanilla 0.29 (mIoU)."
    )
    assert "agop-local" not in text  # equals vanilla
    assert all(f"\n- {line}" in report(tmp_path, "markdown") for line in (fixed, moving, combined))


def test_advice_ignores_correlated_backgrounds(tmp_path):
    def change(row):
        better = "gradcam" if row["background"] == "correlated" else "smoothgrad"
        return {"value": 0.9 if row["method"] == better else 0.1}

    text = advice(write_xai_tris(tmp_path, change))
    assert "gradcam" not in text
    assert text.count("use smoothgrad") == 3


@pytest.mark.parametrize(
    ("control", "ending"),
    [
        ({"centre": [0.5, 0.6, 0.5]}, "control ahead: centre 0.53."),
        (
            {"centre": [0.5, 0.6, 0.5], "activation-norm": [0.6, 0.7, 0.6]},
            "controls ahead: activation-norm 0.63, centre 0.53.",
        ),
        ({"random": [0.4, 0.3, 0.3]}, "control as good: random 0.33."),
    ],
)
def test_advice_names_controls_that_are_not_worse(control, ending, tmp_path):
    text = advice(write_clevr(tmp_path, {"agop-global": [0.3, 0.4, 0.3], "vanilla": [0.1, 0.1, 0.1]} | control))
    assert text.startswith("By mIoU, agop-global is first with mIoU 0.33, ahead of vanilla by 0.233 [")
    assert text.endswith(f"; {ending}")
    assert "use " not in text


def test_one_seed_gives_no_recommendation(tmp_path):
    text = advice(write_xai_tris(tmp_path, seeds=1))
    assert "(one seed: significance unknown)" in text
    assert "use " not in text


def test_the_lowest_score_wins_if_lower_is_better(tmp_path):
    run = write_xai_tris(tmp_path, lambda row: {"value": 0.2 if row["method"] == "gradcam" else 0.7})
    text = advice(change_spec(run, metrics=("deletion",)))
    assert "use gradcam: Del 0.20 on average, ahead of vanilla by 0.500" in text


def test_a_method_defined_only_on_easy_samples_does_not_win(tmp_path):
    random = np.random.default_rng(0)
    easy = np.where(np.arange(100) < 60, 0.8, 0.2) + random.normal(0, 0.01, 100)
    scores = {"vanilla": np.where(np.arange(100) < 60, easy, np.nan), "smoothgrad": easy + 0.05}
    run = write_evaluation(tmp_path, scores)
    assert advice(run) == "By mIoU, use smoothgrad: mIoU 0.61, ahead of vanilla by 0.050 [0.050, 0.050]."
    assert re.search(r'data-method="smoothgrad">.*?class="won".*? ★<', report(run, "html"), re.DOTALL)


def test_no_recommendation_while_a_third_method_is_not_significantly_different(tmp_path):
    random = np.random.default_rng(0)
    base = random.uniform(0.3, 0.7, 100)
    scores = {"vanilla": base, "smoothgrad": base - 0.01, "gradcam": base - 0.02 + random.normal(0, 0.4, 100)}
    text = advice(write_evaluation(tmp_path, scores))
    assert "no clear winner" in text
    assert "vanilla" in text
    assert "gradcam" in text


RANKS = {"vanilla": 0.2, "integrated-gradients": 0.5, "smoothgrad": 0.8}
PLACE = ("linear", "uncorrelated")


def scores(cell, kind, method, metric):
    """By default SRG ranks the methods as AP does with own masks, and in the opposite order with union masks."""
    value = 1 - RANKS[method] if kind == "union" else RANKS[method]
    return [value + 0.01 * cell.seed, value, value, 0.0]


def all_correct(cell):
    return [1, 1, 1, 1]


def test_networks_that_did_not_learn_are_excluded_visibly(tmp_path):
    def learned(cell):
        return float(cell.scenario != "linear" or cell.seed != 2)

    run = write_networks(tmp_path, scores, all_correct, learned)
    assert list(run.values(*PLACE, "vanilla", "average_precision")) == [0, 1, 3]
    assert list(run.values("linear-mlp", "uncorrelated", "vanilla", "average_precision")) == [0, 1, 2, 3]
    assert list(run.with_all_networks().values(*PLACE, "vanilla", "average_precision")) == [0, 1, 2, 3]
    text = report(run, "markdown")
    assert re.search("^## linear / uncorrelated.*not learned, 1 of 4 seeds$", text, re.MULTILINE)
    [sentence] = [remark for remark in report(run)["remarks"] if remark.startswith("Not learned")]
    assert "linear / uncorrelated, 1 of 4 seeds (accuracy 1.000)" in sentence
    assert sentence in text
    assert "linear-mlp" not in sentence


def test_a_place_where_nothing_was_learned_has_no_table_but_is_named(tmp_path):
    run = write_networks(tmp_path, scores, all_correct, lambda cell: float(cell.scenario != "linear"))
    assert {table["scenario"] for table in report(run)["tables"]} == {"linear-mlp"}
    assert "linear / uncorrelated, 4 of 4 seeds" in " ".join(report(run)["remarks"])
    for form in ("html", "markdown", "csv", "latex"):
        assert report(run, form)


def test_correct_images_are_those_that_all_networks_of_a_task_classify_correctly(tmp_path):
    def correct(cell):
        return [1, 1, 0, 1] if cell.scenario == "linear" else [1, 0, 1, cell.seed != 3]

    def score(cell, kind, method, metric):
        return [0.1, 0.2, 0.4, 0.8]

    run = write_networks(tmp_path, score, correct)
    selected = run.with_correct_images()
    for scenario in ("linear", "linear-mlp"):
        values = selected.values(scenario, "uncorrelated", "vanilla", "average_precision")
        assert list(values.values()) == pytest.approx([0.45, 0.45, 0.45, 0.1])
        assert run.values(scenario, "uncorrelated", "vanilla", "average_precision")[0] == pytest.approx(0.375)
    assert "\n| linear / uncorrelated | 0.375 / 0.363 |" in report(run, "markdown")  # 0.3625
    assert "only those that all networks classify correctly" in report(run, "markdown", "--samples", "correct")


def test_a_network_that_did_not_learn_does_not_choose_the_images(tmp_path):
    run = write_networks(
        tmp_path, lambda *_: [0.1, 0.2, 0.4, 0.8], lambda cell: [1, 1, 1, 1] if cell.scenario == "linear" else [0] * 4,
        learned=lambda cell: float(cell.scenario == "linear"),
    )  # fmt: skip
    values = run.with_correct_images().values(*PLACE, "vanilla", "average_precision")
    assert list(values.values()) == pytest.approx([0.375] * 4)


def test_images_are_selected_even_if_the_first_seed_has_no_score(tmp_path):
    def score(cell, kind, method, metric):
        return None if (cell.seed, method) == (0, "vanilla") else [0.1, 0.2, 0.4, 0.8]

    run = write_networks(tmp_path, score, lambda cell: [1, 0, 0, 0])
    values = run.with_correct_images().values(*PLACE, "vanilla", "average_precision")
    assert values == {1: pytest.approx(0.1), 2: pytest.approx(0.1), 3: pytest.approx(0.1)}


def test_runs_that_do_not_record_correct_images_say_so(tmp_path):
    run = write_evaluation(tmp_path, {"vanilla": [0.1, 0.2]})
    assert "only those classified correctly" not in report(run, "markdown")
    assert "report all images" in error_of("report", tmp_path, "--samples", "correct", folder=tmp_path)


def test_claims_are_checked_under_both_ground_truths(tmp_path):
    run = write_networks(tmp_path, scores, all_correct)
    claim = next(claim for claim in report(run)["claims"] if "fill: pixels of training images" in claim["claim"])
    assert claim["verdicts"] == {"own": "holds", "union": "fails"}
    assert claim["evidence"] == {"own": "linear 1.000 [1.000, 1.000]", "union": "linear -1.000 [-1.000, -1.000]"}
    assert f"| {claim['claim']} | **holds (own), fails (union)** |" in report(run, "markdown")
    [sentence] = [remark for remark in report(run)["remarks"] if "depend on the ground truth" in remark]
    assert claim["claim"] in sentence


def test_equal_kinds_of_masks_have_one_table(tmp_path):
    def equal(cell, kind, method, metric):
        return scores(cell, "own" if cell.scenario == "linear" else kind, method, metric)

    run = write_networks(tmp_path, equal, all_correct)
    first, second, third = re.findall("^## linear.*masks", report(run, "markdown"), re.MULTILINE)
    assert (first, second) == (
        "## linear / uncorrelated, own and union masks",
        "## linear-mlp / uncorrelated, own masks",
    )
    assert third == "## linear-mlp / uncorrelated, union masks"


def test_published_values_stand_beside_ours_with_the_same_masks_and_images(tmp_path):
    def correct(cell):
        return [1, 0, 0, 0]

    run = write_networks(tmp_path, scores, correct)
    lines = {(line["scenario"], line["method"]): line for line in report(run)["published"]}
    assert set(lines) == {(s, m) for s in ("linear", "linear-mlp") for m in ("vanilla", "integrated-gradients")}
    line = lines["linear-mlp", "integrated-gradients"]
    assert line["published"] == 0.86
    assert np.mean(line["ours"]["values"]) == pytest.approx(0.5 + 0.015)
    assert f"| 0.86 | {0.515 - 0.86:+.2f} |" in report(run, "markdown")


@pytest.mark.parametrize(("hits", "doubted"), [([1, 0, 1, 0], True), ([1, 1, 1, 0], False)])
def test_scores_of_networks_at_chance_are_doubted(tmp_path, hits, doubted):
    """A smoke test trains for two epochs, but its report looks like any other."""
    run = write_networks(tmp_path, scores, lambda cell: hits)
    text = advice(run)
    assert ("The networks are at chance (accuracy 0.50)" in text) is doubted
    assert ("mIoU" in text or "AP" in text) is not doubted  # nothing else is said then


def test_tables_have_the_papers_values_and_mark_the_best(tmp_path):
    first, *others = report(write_xai_tris(tmp_path))["tables"]
    assert (first["scenario"], first["background"]) == ("linear", "uncorrelated")
    rows = first["rows"]
    best = {metric: [m for m in rows if rows[m][metric]["best"]] for metric in rows["random"]}
    assert best["iou"] == ["agop-weighted"]
    assert best["pointing_game"] == ["integrated-gradients"]
    assert best["deletion"] == ["gradcam"]
    assert rows["agop-weighted"]["iou"]["paper"] == 0.314
    correlated = next(table for table in others if table["background"] == "correlated")
    assert correlated["rows"]["agop-weighted"]["iou"]["paper"] is None


def test_a_score_of_few_samples_is_never_the_best(tmp_path):
    """GradCAM++ beats all methods, but only on the few samples where it has a map at all."""

    def change(row):
        few = row["method"] == "gradcam++" and row["scenario"] == "linear" and row["metric"] == "iou"
        return {"value": 0.99, "n": 4} if few else None

    run = write_xai_tris(tmp_path, change)
    rows = report(run)["tables"][0]["rows"]
    assert rows["gradcam++"]["iou"]["mean"] == pytest.approx(0.99)
    assert not rows["gradcam++"]["iou"]["best"]
    assert any(cells["iou"]["best"] for cells in rows.values())
    assert "gradcam++" not in advice(run).splitlines()[0]


def test_other_runs_do_not_cite_the_paper(tmp_path):
    """Even if a scenario has the name of one of the paper's."""
    (table,) = report(write_evaluation(tmp_path, {"vanilla": np.linspace(0, 1, 100)}))["tables"]
    assert table["scenario"] == "linear"
    assert table["rows"]["vanilla"]["iou"]["paper"] is None


def test_differences_are_paired(tmp_path):
    def change(row):
        shift = {"vanilla": 0.0, "agop-local": 0.01}.get(row["method"])
        return None if shift is None else {"value": (0.1, 0.5, 0.9)[row["seed"]] + shift}

    difference = write_xai_tris(tmp_path, change).difference("linear", "uncorrelated", "iou", "agop-local", "vanilla")
    assert difference.interval == pytest.approx((0.01, 0.01))


@pytest.mark.parametrize("spec", [None, {}])
def test_other_folders_raise(spec, tmp_path):
    if spec is not None:
        (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert "not a run folder" in error_of("report", tmp_path, folder=tmp_path)
