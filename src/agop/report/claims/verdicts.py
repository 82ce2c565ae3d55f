"""What a claim of the paper can come to, and how the rows decide it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agop.report.estimate import Estimate
from agop.report.run import Run, paper

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
Verdict = tuple[str, str]
Claim = tuple[str, Callable[[Run], Verdict]]


@dataclass(frozen=True)
class Checked:
    """A claim, what became of it, and the figures that say so."""

    claim: str
    verdict: str
    figures: str


def above(
    scenario: str, background: str, metric: str, a: str, b: str, masks: str | None = None
) -> Callable[[Run], Verdict]:
    """The claim that method a scores above method b."""

    def verdict(run: Run) -> Verdict:
        if not run.has(scenario, background, a, b):
            return not_run()
        found = run.difference(scenario, background, metric, a, b, masks)
        left, right = (run.estimate(scenario, background, method, metric, masks) for method in (a, b))
        if found is None or left is None or right is None:
            return UNDECIDED, "no defined scores"
        return sign(found), f"{a} {left.mean:.3f}, {b} {right.mean:.3f}, difference {found}"

    return verdict


def extreme(scenario: str, background: str, metric: str, method: str, *, first: bool) -> Callable[[Run], Verdict]:
    """The claim that a method of the paper is above, or below, every other one of it but random."""

    def verdict(run: Run) -> Verdict:
        others = [m for m in paper()[scenario] if m not in (method, "random")]
        if not run.has(scenario, background, method, *others):
            return not_run()
        order = [(method, o) if first else (o, method) for o in others]
        found = {o: run.difference(scenario, background, metric, *pair) for o, pair in zip(others, order, strict=True)}
        if not any(found.values()):
            return UNDECIDED, "no defined scores"
        verdicts = {o: sign(d) for o, d in found.items() if d is not None}
        verdict = next((v for v in (FAILS, UNDECIDED) if v in verdicts.values()), HOLDS)
        # The one that decides: of those with this verdict, the closest.
        decisive = {o: d for o, d in found.items() if d is not None and verdicts[o] == verdict}
        rival, closest = min(decisive.items(), key=lambda item: item[1].mean)
        return verdict, f"{method} over {rival}: {closest}" if first else f"{rival} over {method}: {closest}"

    return verdict


def local_is_vanilla(run: Run) -> Verdict:
    """The claim that two methods are one."""
    if not {"agop-local", "vanilla"} <= set(run.spec.methods):
        return not_run()
    values: dict[tuple[Any, ...], dict[str, float | None]] = defaultdict(dict)
    for row in run.rows:
        where = (row["scenario"], row["background"], row.get("masks"), row["seed"], row["metric"])
        values[where][row["method"]] = row["value"]
    pairs = [(v["agop-local"], v["vanilla"]) for v in values.values() if "vanilla" in v]
    different = sum(a != b for a, b in pairs)
    return (
        FAILS if different else HOLDS
    ), f"{len(pairs) - different} of {len(pairs)} scores are equal to the last digit"


def sign(difference: Estimate) -> str:
    """Holds if the whole interval is above zero, fails if it is below."""
    if difference.interval is None:
        return UNDECIDED
    return HOLDS if difference.interval[0] > 0 else FAILS if difference.interval[1] < 0 else UNDECIDED


def decided(estimate: Estimate, *, below: float) -> str:
    """Holds if the whole interval is at most `below`, fails if it is above."""
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    return HOLDS if high <= below else FAILS if low > below else UNDECIDED


def bounded(estimates: list[Estimate], centre: float, reach: float) -> Verdict:
    """The claim that all estimates lie within reach of a centre."""
    if not estimates:
        return not_run()
    verdicts = []
    for estimate in estimates:
        low, high = estimate.interval or (estimate.mean, estimate.mean)
        inside = centre - reach <= low and high <= centre + reach
        outside = high < centre - reach or low > centre + reach
        verdicts.append(HOLDS if inside else FAILS if outside else UNDECIDED)
    verdict = FAILS if FAILS in verdicts else HOLDS if set(verdicts) == {HOLDS} else UNDECIDED
    return verdict, ", ".join(str(estimate) for estimate in estimates)


def not_run() -> Verdict:
    """For a claim about what a run does not have."""
    return UNDECIDED, "not in this run"
