"""The paper's claims, each checked against the rows: holds, fails or undecided, with the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agop.report.run import Estimate, Run

FIXED = ("linear", "multiplicative")
_CLEAN = "uncorrelated"
_NEAR_ZERO, _NEAR_HALF = 0.01, 0.05
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


@dataclass(frozen=True)
class Checked:
    """A claim, what became of it, and the figures that say so."""

    claim: str
    verdict: str
    figures: str


def check(run: Run) -> list[Checked]:
    """Every claim, in the paper's order."""
    return [Checked(claim, *verdict(run)) for claim, verdict in _CLAIMS]


Verdict = tuple[str, str]


def _above(scenario: str, metric: str, a: str, b: str) -> Callable[[Run], Verdict]:
    """The claim that method a scores above method b."""

    def verdict(run: Run) -> Verdict:
        if not run.has(scenario, _CLEAN, a, b):
            return _not_run()
        found = run.difference(scenario, _CLEAN, metric, a, b)
        left, right = (run.estimate(scenario, _CLEAN, method, metric) for method in (a, b))
        if found is None or left is None or right is None:
            return UNDECIDED, "no defined scores"
        return _sign(found), f"{a} {left.mean:.3f}, {b} {right.mean:.3f}, difference {found}"

    return verdict


def _extreme(scenario: str, metric: str, method: str, *, first: bool) -> Callable[[Run], Verdict]:
    """The claim that a method is above, or below, every other one but random."""

    def verdict(run: Run) -> Verdict:
        others = [m for m in run.spec.methods if m not in (method, "random")]
        if not others or not run.has(scenario, _CLEAN, method):
            return _not_run()
        order = [(method, o) if first else (o, method) for o in others]
        found = {o: run.difference(scenario, _CLEAN, metric, *pair) for o, pair in zip(others, order, strict=True)}
        rival, closest = min(((o, d) for o, d in found.items() if d is not None), key=lambda item: item[1].mean)
        verdicts = {_sign(d) for d in found.values() if d is not None}
        verdict = HOLDS if verdicts == {HOLDS} else FAILS if FAILS in verdicts else UNDECIDED
        return verdict, f"closest is {rival}, {'behind' if first else 'ahead'} by {closest}"

    return verdict


def _gradcam_points_nowhere(run: Run) -> Verdict:
    found = [run.estimate(s, _CLEAN, "gradcam", "pointing_game") for s in FIXED if run.has(s, _CLEAN, "gradcam")]
    return _bounded([e for e in found if e is not None], 0.0, _NEAR_ZERO)


def _chance_on_correlated(run: Run) -> Verdict:
    found = [run.estimate(s, "correlated", "model", "accuracy") for s in run.spec.scenarios if run.has(s, "correlated")]
    return _bounded([e for e in found if e is not None], 0.5, _NEAR_HALF)


def _local_is_vanilla(run: Run) -> Verdict:
    if not {"agop-local", "vanilla"} <= set(run.spec.methods):
        return _not_run()
    values: dict[tuple[Any, ...], dict[str, float | None]] = defaultdict(dict)
    for row in run.rows:
        values[row["scenario"], row["background"], row["seed"], row["metric"]][row["method"]] = row["value"]
    pairs = [(v["agop-local"], v["vanilla"]) for v in values.values() if "vanilla" in v]
    different = sum(a != b for a, b in pairs)
    return (
        FAILS if different else HOLDS
    ), f"{len(pairs) - different} of {len(pairs)} scores are equal to the last digit"


def _all_fail_on_xor(run: Run) -> Verdict:
    found = {m: run.estimate("xor", _CLEAN, m, "iou") for m in run.spec.methods if run.has("xor", _CLEAN, m)}
    scored = {m: e for m, e in found.items() if e is not None and m != "random"}
    if not scored:
        return _not_run()
    best, estimate = max(scored.items(), key=lambda item: item[1].mean)
    told = f"no mIoU above 0.01, says the paper; {best} has {estimate} with {run.spec.masks} masks"
    return _decided(estimate, below=_NEAR_ZERO), told


def _improves_after_accuracy_levels_off(run: Run) -> Verdict:
    """diag(M) at the end against the step at which accuracy came within a hundredth of its best."""
    gains = list(_late_gains(run))
    if not gains:
        return _not_run()
    found = Estimate(tuple(gains))
    return _sign(found), f"mIoU of agop-global from there to the end {found}, over {len(gains)} runs"


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


_CLAIMS: tuple[tuple[str, Callable[[Run], Verdict]], ...] = (
    ("AGOP-Weighted is above IG in mIoU on linear", _above("linear", "iou", "agop-weighted", "integrated-gradients")),
    (
        "AGOP-Weighted is above IG in Energy on linear",
        _above("linear", "energy", "agop-weighted", "integrated-gradients"),
    ),
    (
        "AGOP-Global is above IG in mIoU on multiplicative",
        _above("multiplicative", "iou", "agop-global", "integrated-gradients"),
    ),
    ("IG is below random in mIoU on multiplicative", _above("multiplicative", "iou", "random", "integrated-gradients")),
    (
        "IG is first in mIoU on translations_rotations",
        _extreme("translations_rotations", "iou", "integrated-gradients", first=True),
    ),
    (
        "AGOP-Global is last in mIoU on translations_rotations",
        _extreme("translations_rotations", "iou", "agop-global", first=False),
    ),
    ("GradCAM's PG is 0 where positions are fixed", _gradcam_points_nowhere),
    ("AGOP-Local is VanillaGrad", _local_is_vanilla),
    ("Accuracy is about 50 % on correlated backgrounds", _chance_on_correlated),
    ("diag(M) improves after accuracy has levelled off", _improves_after_accuracy_levels_off),
    ("All methods fail on XOR", _all_fail_on_xor),
)


def _sign(difference: Estimate) -> str:
    """Holds if the whole interval is above zero, fails if it is below."""
    if difference.interval is None:
        return UNDECIDED
    return HOLDS if difference.interval[0] > 0 else FAILS if difference.interval[1] < 0 else UNDECIDED


def _decided(estimate: Estimate, *, below: float) -> str:
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    return HOLDS if high <= below else FAILS if low > below else UNDECIDED


def _bounded(estimates: list[Estimate], centre: float, reach: float) -> Verdict:
    """The claim that all estimates lie within reach of a centre."""
    if not estimates:
        return _not_run()
    verdicts = []
    for estimate in estimates:
        low, high = estimate.interval or (estimate.mean, estimate.mean)
        inside = centre - reach <= low and high <= centre + reach
        outside = high < centre - reach or low > centre + reach
        verdicts.append(HOLDS if inside else FAILS if outside else UNDECIDED)
    verdict = FAILS if FAILS in verdicts else HOLDS if set(verdicts) == {HOLDS} else UNDECIDED
    return verdict, ", ".join(str(estimate) for estimate in estimates)


def _not_run() -> Verdict:
    return UNDECIDED, "not in this run"
