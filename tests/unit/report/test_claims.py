"""The paper's claims, checked against run folders whose scores are known."""

import math
from dataclasses import replace

import pytest

from agop.report.claims import check, remarks
from agop.report.formats import registry
from agop.report.run import Run
from tests.report_runs import METHODS, write_clevr, write_xai_tris


def verdicts(run):
    return {checked.claim: checked.verdict for checked in check(run)}


def place_of(row):
    return f"{row['scenario']} {row['method']} {row['metric']}"


def test_all_claims_hold_for_the_papers_own_scores(tmp_path):
    run = write_xai_tris(tmp_path)
    assert list(verdicts(run).values()) == 11 * ["holds"]
    assert remarks(run) == ["With 3 seeds the intervals are wide: --seeds 10 decides more claims."]


@pytest.mark.parametrize(
    ("place", "claim"),
    [
        ("linear agop-weighted iou", "AGOP-Weighted beats IG in mIoU on linear"),
        ("linear agop-weighted energy", "AGOP-Weighted beats IG in Energy on linear"),
        ("multiplicative agop-global iou", "AGOP-Global beats IG in mIoU on multiplicative"),
        ("multiplicative random iou", "IG scores below random in mIoU on multiplicative"),
        ("translations_rotations integrated-gradients iou", "IG ranks first in mIoU on translations_rotations"),
        ("linear vanilla deletion", "AGOP-Local equals VanillaGrad"),
    ],
)
def test_changed_scores_make_only_their_claim_fail(place, claim, tmp_path):
    low = 0.09 if "translations" in place else 0.001  # still above AGOP-Global there
    run = write_xai_tris(tmp_path, lambda row: {"value": low} if place_of(row) == place else None)
    assert [name for name, verdict in verdicts(run).items() if verdict == "fails"] == [claim]


def test_the_remaining_claims_can_fail(tmp_path):
    def change(row):
        if row["method"] == "gradcam" and row["metric"] == "pointing_game":
            return {"value": 0.3}
        if row["scenario"] == "translations_rotations" and row["method"] == "agop-global":
            return {"value": 0.4}
        if row["scenario"] == "xor" and row["method"] == "agop-global":
            return {"value": 0.5}
        return None

    results = verdicts(write_xai_tris(tmp_path, change, accuracy=0.7))
    assert sorted(name for name, verdict in results.items() if verdict == "fails") == [
        "AGOP-Global ranks last in mIoU on translations_rotations",
        "Accuracy is about 50 % on correlated backgrounds",
        "All methods fail on XOR",
        "GradCAM's PG is 0 where positions are fixed",
    ]


def test_claims_are_undecided_with_one_seed_or_disagreeing_seeds_or_undefined_scores(tmp_path):
    def change(row):
        if row["scenario"] == "linear" and row["method"] == "agop-weighted":
            return {"value": (0.1, 0.4, 0.2)[row["seed"]]}
        return {"value": None} if row["scenario"] != "linear" and row["metric"] == "iou" else None

    results = verdicts(write_xai_tris(tmp_path / "three", change))
    assert results["AGOP-Weighted beats IG in mIoU on linear"] == "undecided"
    assert results["IG ranks first in mIoU on translations_rotations"] == "undecided"
    results = verdicts(write_xai_tris(tmp_path / "one", seeds=1))
    assert {verdict for claim, verdict in results.items() if "beats" in claim} == {"undecided"}


def test_claims_about_missing_methods_are_counted_in_a_remark(tmp_path):
    """Ranking first needs all methods of the paper."""
    spec = write_xai_tris(tmp_path).spec
    replace(spec, methods=("random", "vanilla", "integrated-gradients")).save(tmp_path)
    run = Run(tmp_path)
    assert list(verdicts(run)) == [
        "IG scores below random in mIoU on multiplicative",
        "Accuracy is about 50 % on correlated backgrounds",
        "diag(M) improves after accuracy has levelled off",
        "All methods fail on XOR",
    ]
    missing = "Not checked: 7 claims of the paper, about methods or scenarios that this run doesn't have."
    assert missing in remarks(run)
    assert missing in registry.get("markdown")(run)


def test_an_undecided_ranking_names_the_decisive_rival(tmp_path):
    """IG is far ahead of every method except one, from which it isn't significantly different."""

    def change(row):
        value = {
            "translations_rotations smoothgrad iou": 0.5 + 0.1 * (row["seed"] - 1),
            "translations_rotations integrated-gradients iou": 0.51,
        }.get(place_of(row))
        return None if value is None else {"value": value}

    (checked,) = [c for c in check(write_xai_tris(tmp_path, change)) if c.claim.startswith("IG ranks first in mIoU")]
    assert checked.verdict == "undecided"
    assert checked.figures.startswith("integrated-gradients over smoothgrad: 0.010 [")


def test_clevr_claims_compare_samples_where_both_are_defined(tmp_path):
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.41, math.nan], "integrated-gradients": [0.1, 0.2, 0.9]})
    difference = run.difference("clevr-xai", "drawn", "iou", "agop-global", "integrated-gradients")
    assert difference.values == pytest.approx((0.2, 0.21))
    assert verdicts(run)["AGOP-Global beats IG in mIoU"] == "holds"
    assert "AGOP-Weighted beats IG in mIoU" not in verdicts(run)


def test_a_remark_says_if_agop_global_is_no_better_than_a_control(tmp_path):
    even = write_clevr(tmp_path / "even", {"agop-global": [0.3, 0.31], "centre": [0.3, 0.31], "mean-mask": [0.1, 0.1]})
    remark, _ = remarks(even)  # the other one counts the claims about methods that the run doesn't have
    assert "centre in mIoU" in remark
    assert "mean-mask" not in remark
    assert remark in registry.get("markdown")(even)
    scores = {"agop-global": [0.3, 0.31], "centre": [0.2, 0.2], "mean-mask": [0.1, 0.1]}
    assert not any("centre" in remark for remark in remarks(write_clevr(tmp_path / "better", scores)))


@pytest.mark.parametrize(("factor", "verdict"), [(1.4, "holds"), (1.25, "undecided"), (1.1, "fails")])
def test_agop_is_compared_with_the_best_of_the_papers_methods(factor, verdict, tmp_path):
    """IG is the best of them on average; another method, and a control, are better and don't count."""
    best = [0.4, 0.5, 0.6, 0.5]
    noise = [0.01, -0.01, 0.02, -0.02]
    scores = {key: [0.1, 0.9, 0.1, 0.1] for key in METHODS} | {"integrated-gradients": best}
    scores["agop"] = [factor * value + more for value, more in zip(best, noise, strict=True)]
    scores |= dict.fromkeys(("agop-patch", "sobel"), [0.95] * 4)
    (checked,) = [c for c in check(write_clevr(tmp_path, scores, ("average_precision",))) if "Beyond" in c.claim]
    assert checked.verdict == verdict
    assert checked.figures.startswith(f"bar 1.25: clevr-xai {factor:.3f} [")


def test_claim_about_agop_needs_all_of_the_papers_methods(tmp_path):
    scores = {key: [0.4, 0.5] for key in ("agop", "vanilla")}
    assert not [c for c in check(write_clevr(tmp_path, scores, ("average_precision",))) if "Beyond" in c.claim]
