"""The paper's claims about XAI-TRIS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agop.report.claims.verdicts import (
    Claim,
    Verdict,
    above,
    bounded,
    decided,
    extreme,
    local_is_vanilla,
    not_run,
    sign,
)
from agop.report.estimate import Estimate
from agop.report.run import Run, paper

FIXED = ("linear", "multiplicative")
_CLEAN = "uncorrelated"
_NEAR_ZERO, _NEAR_HALF = 0.01, 0.05


def _gradcam_points_nowhere(run: Run) -> Verdict:
    scores = [run.estimate(s, _CLEAN, "gradcam", "pointing_game") for s in FIXED if run.has(s, _CLEAN, "gradcam")]
    return bounded([score for score in scores if score is not None], 0.0, _NEAR_ZERO)


def _chance_on_correlated(run: Run) -> Verdict:
    """On validation data, after one training: a network that didn't learn is trained again."""
    scenarios = [s for s in run.spec.scenarios if s not in run.spec.tasks and run.has(s, "correlated")]
    every = run.with_all_networks()
    metric = "accuracy" if run.spec.restarts is None else "first_accuracy"
    accuracies = [every.estimate(scenario, "correlated", "model", metric) for scenario in scenarios]
    return bounded([accuracy for accuracy in accuracies if accuracy is not None], 0.5, _NEAR_HALF)


def _all_fail_on_xor(run: Run) -> Verdict:
    methods = [method for method in paper()["xor"] if method != "random" and run.has("xor", _CLEAN, method)]
    scores = {m: score for m in methods if (score := run.estimate("xor", _CLEAN, m, "iou")) is not None}
    if not scores:
        return not_run()
    best, score = max(scores.items(), key=lambda item: item[1].mean)
    evidence = f"the paper reports no mIoU above 0.01; {best} has {score}"
    return decided(score, below=_NEAR_ZERO), evidence


def _improves_after_plateau(run: Run) -> Verdict:
    """The mIoU of diag(M) at the end minus its mIoU when accuracy came within 0.01 of its best."""
    gains = list(_late_gains(run))
    if not gains:
        return not_run()
    gain = Estimate(tuple(gains))
    return sign(gain), f"change in agop-global's mIoU from there to the end {gain}, over {len(gains)} runs"


def _late_gains(run: Run) -> Iterator[float]:
    curves: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in run.convergence:
        ours = row["scenario"] in run.spec.main_scenarios
        if ours and row["background"] == _CLEAN and row["value"] is not None:
            curves[row["scenario"], row["seed"]][f"{row['method']} {row['metric']}"][row["step"]] = row["value"]
    for curve in curves.values():
        accuracy, quality = curve["model accuracy"], curve["agop-global iou"]
        if not accuracy or not quality:
            continue
        level = min(step for step, value in accuracy.items() if value >= max(accuracy.values()) - 0.01)
        if level in quality and level < max(quality):
            yield quality[max(quality)] - quality[level]


CLAIMS: tuple[Claim, ...] = (
    (
        "AGOP-Weighted beats IG in mIoU on linear",
        above("linear", _CLEAN, "iou", "agop-weighted", "integrated-gradients"),
    ),
    (
        "AGOP-Weighted beats IG in Energy on linear",
        above("linear", _CLEAN, "energy", "agop-weighted", "integrated-gradients"),
    ),
    (
        "AGOP-Global beats IG in mIoU on multiplicative",
        above("multiplicative", _CLEAN, "iou", "agop-global", "integrated-gradients"),
    ),
    (
        "IG scores below random in mIoU on multiplicative",
        above("multiplicative", _CLEAN, "iou", "random", "integrated-gradients"),
    ),
    (
        "IG ranks first in mIoU on translations_rotations",
        extreme("translations_rotations", _CLEAN, "iou", "integrated-gradients", first=True),
    ),
    (
        "AGOP-Global ranks last in mIoU on translations_rotations",
        extreme("translations_rotations", _CLEAN, "iou", "agop-global", first=False),
    ),
    ("GradCAM's PG is 0 where positions are fixed", _gradcam_points_nowhere),
    ("AGOP-Local equals VanillaGrad", local_is_vanilla),
    ("Accuracy is about 50 % on correlated backgrounds", _chance_on_correlated),
    ("diag(M) improves after accuracy has levelled off", _improves_after_plateau),
    ("All methods fail on XOR", _all_fail_on_xor),
)
