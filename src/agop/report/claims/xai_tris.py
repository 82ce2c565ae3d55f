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
from agop.report.run import Run

FIXED = ("linear", "multiplicative")
_CLEAN = "uncorrelated"
_NEAR_ZERO, _NEAR_HALF = 0.01, 0.05


def _gradcam_points_nowhere(run: Run) -> Verdict:
    found = [run.estimate(s, _CLEAN, "gradcam", "pointing_game") for s in FIXED if run.has(s, _CLEAN, "gradcam")]
    return bounded([e for e in found if e is not None], 0.0, _NEAR_ZERO)


def _chance_on_correlated(run: Run) -> Verdict:
    found = [run.estimate(s, "correlated", "model", "accuracy") for s in run.spec.scenarios if run.has(s, "correlated")]
    return bounded([e for e in found if e is not None], 0.5, _NEAR_HALF)


def _all_fail_on_xor(run: Run) -> Verdict:
    found = {m: run.estimate("xor", _CLEAN, m, "iou") for m in run.spec.methods if run.has("xor", _CLEAN, m)}
    scored = {m: e for m, e in found.items() if e is not None and m != "random"}
    if not scored:
        return not_run()
    best, estimate = max(scored.items(), key=lambda item: item[1].mean)
    told = f"no mIoU above 0.01, says the paper; {best} has {estimate} with {run.spec.masks} masks"
    return decided(estimate, below=_NEAR_ZERO), told


def _improves_after_accuracy_levels_off(run: Run) -> Verdict:
    """diag(M) at the end against the step at which accuracy came within a hundredth of its best."""
    gains = list(_late_gains(run))
    if not gains:
        return not_run()
    found = Estimate(tuple(gains))
    return sign(found), f"mIoU of agop-global from there to the end {found}, over {len(gains)} runs"


def _late_gains(run: Run) -> Iterator[float]:
    curves: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in run.convergence:
        if row["background"] == _CLEAN and row["value"] is not None:
            curves[row["scenario"], row["seed"]][f"{row['method']} {row['metric']}"][row["step"]] = row["value"]
    for curve in curves.values():
        accuracy, quality = curve["model accuracy"], curve["agop-global iou"]
        level = min(step for step, value in accuracy.items() if value >= max(accuracy.values()) - 0.01)
        if quality and level in quality and level < max(quality):
            yield quality[max(quality)] - quality[level]


CLAIMS: tuple[Claim, ...] = (
    (
        "AGOP-Weighted is above IG in mIoU on linear",
        above("linear", _CLEAN, "iou", "agop-weighted", "integrated-gradients"),
    ),
    (
        "AGOP-Weighted is above IG in Energy on linear",
        above("linear", _CLEAN, "energy", "agop-weighted", "integrated-gradients"),
    ),
    (
        "AGOP-Global is above IG in mIoU on multiplicative",
        above("multiplicative", _CLEAN, "iou", "agop-global", "integrated-gradients"),
    ),
    (
        "IG is below random in mIoU on multiplicative",
        above("multiplicative", _CLEAN, "iou", "random", "integrated-gradients"),
    ),
    (
        "IG is first in mIoU on translations_rotations",
        extreme("translations_rotations", _CLEAN, "iou", "integrated-gradients", first=True),
    ),
    (
        "AGOP-Global is last in mIoU on translations_rotations",
        extreme("translations_rotations", _CLEAN, "iou", "agop-global", first=False),
    ),
    ("GradCAM's PG is 0 where positions are fixed", _gradcam_points_nowhere),
    ("AGOP-Local is VanillaGrad", local_is_vanilla),
    ("Accuracy is about 50 % on correlated backgrounds", _chance_on_correlated),
    ("diag(M) improves after accuracy has levelled off", _improves_after_accuracy_levels_off),
    ("All methods fail on XOR", _all_fail_on_xor),
)
