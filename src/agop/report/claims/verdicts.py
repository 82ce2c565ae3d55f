"""Verdicts on a claim of the paper, and how the rows decide them."""

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
    """A claim with its verdict, and the evidence as text, by kind of masks."""

    claim: str
    verdicts: dict[str, str]
    evidence: dict[str, str]

    @property
    def shown(self) -> dict[str, str]:
        """Verdicts by kind of masks; one verdict without a kind if it's the same for all of them."""
        same = len(set(self.verdicts.values())) == 1
        return {"": next(iter(self.verdicts.values()))} if same else self.verdicts

    @property
    def verdict(self) -> str:
        """The verdict, by kind of masks where it depends on them."""
        return _joined(self.verdicts, ", ")

    @property
    def figures(self) -> str:
        """The evidence, by kind of masks where it depends on them."""
        return _joined(self.evidence, "; ")


def _joined(texts: dict[str, str], between: str) -> str:
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return between.join(f"{text} ({kind})" for kind, text in texts.items())


def above(
    scenario: str, background: str, metric: str, a: str, b: str, masks: str | None = None
) -> Callable[[Run], Verdict]:
    """The claim that method a beats method b."""

    def verdict(run: Run) -> Verdict:
        if not run.has(scenario, background, a, b):
            return not_run()
        difference = run.difference(scenario, background, metric, a, b, masks)
        left, right = (run.estimate(scenario, background, method, metric, masks) for method in (a, b))
        if difference is None or left is None or right is None:
            return UNDECIDED, "no defined scores"
        return sign(difference), f"{a} {left.mean:.3f}, {b} {right.mean:.3f}, difference {difference}"

    return verdict


def extreme(scenario: str, background: str, metric: str, method: str, *, first: bool) -> Callable[[Run], Verdict]:
    """The claim that a method ranks first, or last, among the paper's methods without random."""

    def verdict(run: Run) -> Verdict:
        others = [m for m in paper()[scenario] if m not in (method, "random")]
        if not run.has(scenario, background, method, *others):
            return not_run()
        order = [(method, o) if first else (o, method) for o in others]
        differences = [run.difference(scenario, background, metric, *pair) for pair in order]
        leads = {o: lead for o, lead in zip(others, differences, strict=True) if lead is not None}
        if not leads:
            return UNDECIDED, "no defined scores"
        verdicts = {o: sign(lead) for o, lead in leads.items()}
        verdict = next((v for v in (FAILS, UNDECIDED) if v in verdicts.values()), HOLDS)
        # The evidence is the closest of the rivals with this verdict.
        rival = min((o for o in leads if verdicts[o] == verdict), key=lambda o: leads[o].mean)
        a, b = (method, rival) if first else (rival, method)
        return verdict, f"{a} over {b}: {leads[rival]}"

    return verdict


def local_is_vanilla(run: Run) -> Verdict:
    """The claim that agop-local and vanilla have the same scores."""
    if not {"agop-local", "vanilla"} <= set(run.spec.methods):
        return not_run()
    values: dict[tuple[Any, ...], dict[str, float | None]] = defaultdict(dict)
    for row in run.rows:
        where = (row["scenario"], row["background"], row.get("masks"), row["seed"], row["metric"])
        values[where][row["method"]] = row["value"]
    pairs = [(v["agop-local"], v["vanilla"]) for v in values.values() if {"agop-local", "vanilla"} <= v.keys()]
    different = sum(a != b for a, b in pairs)
    verdict = FAILS if different else HOLDS
    return verdict, f"{len(pairs) - different} of {len(pairs)} scores are exactly equal"


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


def all_above_zero(estimates: dict[str, Estimate]) -> Verdict:
    """The claim that all estimates are above zero."""
    if not estimates:
        return not_run()
    verdicts = [sign(estimate) for estimate in estimates.values()]
    verdict = next((v for v in (FAILS, UNDECIDED) if v in verdicts), HOLDS)
    return verdict, ", ".join(f"{name} {estimate}" for name, estimate in estimates.items())


def not_run() -> Verdict:
    """The verdict on a claim about methods or scenarios that the run doesn't have."""
    return UNDECIDED, "not in this run"
