"""The paper's claims, each checked against the rows: holds, fails or undecided, with the evidence."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agop.report.folder import CELL, OBJECT
from agop.report.run import Run, competing, paper
from agop.stats import Estimate, Ratio, simultaneous, spearman
from agop.tables import counted

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
Verdict = tuple[str, str]
# The text, a function Run → Verdict, and the function's further arguments.
Claim = tuple[Any, ...]
FIXED = ("linear", "multiplicative")
_NOT_RUN: Verdict = (UNDECIDED, "not in this run")
_NO_SCORES: Verdict = (UNDECIDED, "no defined scores")
_CLEAN, _CLEVR, _PRECISION = "uncorrelated", "clevr-xai", "average_precision"
# Ground truths under which claims are checked, if a run has several.
_TRUTHS = ("own", "union")
# Fewer methods give no rank correlation; fewer seeds give wide intervals.
_FEWEST_METHODS, _FEW_SEEDS = 3, 6


@dataclass(frozen=True)
class Checked:
    """A claim with its verdict, and the evidence as text, by kind of masks."""

    claim: str
    verdicts: dict[str, str]
    evidence: dict[str, str]

    @property
    def shown(self) -> dict[str, str]:
        """Verdicts by kind of masks; one verdict without a kind if it's the same for all of them."""
        return self.verdicts if len(set(self.verdicts.values())) > 1 else {"": next(iter(self.verdicts.values()))}

    @property
    def verdict(self) -> str:
        """The verdict, by kind of masks where it depends on them."""
        return _joined(self.verdicts, ", ")

    @property
    def figures(self) -> str:
        """The evidence, by kind of masks where it depends on them."""
        return _joined(self.evidence, "; ")


def check(run: Run) -> list[Checked]:
    """The claims about methods and scenarios of the run, in the paper's order, under each ground truth.

    None without training.
    """
    return [] if run.spec.epochs == 0 else _checked(run, _CLAIMS.get(run.spec.benchmark, ()))


def tally(claims: Sequence[Checked]) -> list[str]:
    """How many claims have each verdict, in one sentence; none without claims."""
    verdicts = Counter(claim.verdict if len(claim.shown) == 1 else "depends on the masks" for claim in claims)
    listed = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
    return [f"Verdicts on {counted(len(claims), 'claim')}: {listed}."] if claims else []


def heading(run: Run) -> str:
    """The title of the claims: the paper has none about some benchmarks."""
    return "The paper's claims" if run.spec.benchmark in ("xai-tris", "clevr-xai") else "Follow-up questions"


def remarks(run: Run) -> list[str]:
    """Sentences on results beyond the paper's claims."""
    spec, claims = run.spec, _CLAIMS.get(run.spec.benchmark, ())
    sentences = _lost_to_controls(run) if spec.benchmark == _CLEVR else []
    if spec.epochs == 0 and claims:
        sentences.append("The networks have random weights: what scores above random shows the image, not the model.")
    if changed := [f"“{claim.claim}” ({claim.verdict})" for claim in check(run) if len(claim.shown) > 1]:
        sentences.append(f"These verdicts depend on the ground truth: {'; '.join(changed)}.")
    papers = [claim for claim in claims if claim not in _OURS]
    missing = len(papers) - len(_checked(run, papers)) if spec.epochs else 0
    if missing:
        sentences.append(
            f"Not checked: {counted(missing, 'claim')} of the paper, about methods or scenarios that this run doesn't "
            "have."
        )
    if excluded := list(_excluded(run)):
        sentences.append(f"Not learned, and therefore excluded from means and claims: {'; '.join(excluded)}.")
    if spec.intervals == "seeds" and 1 < spec.seeds < _FEW_SEEDS:
        sentences.append(f"With {spec.seeds} seeds the intervals are wide: --seeds 10 decides more claims.")
    return sentences


def _checked(run: Run, claims: Sequence[Claim]) -> list[Checked]:
    kinds = [kind for kind in run.kinds if kind in _TRUTHS] or [run.masks]
    views = {kind: run.with_masks(kind) for kind in kinds}
    checked = []
    for claim, verdict, *arguments in claims:
        results = {kind: verdict(view, *arguments) for kind, view in views.items()}
        if _NOT_RUN not in results.values():
            verdicts, evidence = ({kind: result[part] for kind, result in results.items()} for part in (0, 1))
            checked.append(Checked(claim, verdicts, evidence))
    return checked


def _joined(texts: dict[str, str], between: str) -> str:
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return between.join(f"{text} ({kind})" for kind, text in texts.items())


def _excluded(run: Run) -> Iterator[str]:
    """Places with networks that didn't learn their task, and how accurate these are."""
    for scenario, background in dict.fromkeys(place[:2] for place in run.places):
        seeds = run.not_learned(scenario, background)
        accuracies = run.with_all_networks().values(scenario, background, "model", "accuracy")
        if seeds:
            mean = sum(accuracies[seed] for seed in seeds) / len(seeds)
            yield f"{scenario} / {background}, {len(seeds)} of {run.spec.seeds} seeds (accuracy {mean:.3f})"


def _lost_to_controls(run: Run) -> list[str]:
    """One sentence if AGOP-Global doesn't beat the controls on CLEVR-XAI."""
    controls = ("centre", "mean-mask")
    if not run.has(_CLEVR, run.spec.backgrounds[0], "agop-global", *controls):
        return []
    lost = [
        f"{control} in {run.metrics[metric]['label']}"
        for control in controls
        for metric in ("iou", "energy", _PRECISION)
        if metric in run.spec.metrics and _above(run, metric, "agop-global", control)[0] != HOLDS
    ]
    result = f"AGOP-Global scores no better than model-independent controls ({', '.join(lost)})"
    return [f"{result}: its scores there may only reflect where objects tend to be."] if lost else []


def _within(estimate: Estimate | Ratio, lowest: float, highest: float = math.inf, comparisons: int = 1) -> str:
    """Holds if the whole interval is within these bounds, fails if it is outside. Undecided without an interval.

    A claim that fails if one of several comparisons fails has as many chances to: their intervals are wider.
    """
    interval, wide = estimate.interval, simultaneous(estimate, comparisons)
    if interval is None or wide is None:
        return UNDECIDED
    if lowest < interval[0] and interval[1] < highest:
        return HOLDS
    return FAILS if wide[1] < lowest or wide[0] > highest else UNDECIDED


def _all(verdicts: Collection[str]) -> str:
    """Holds if all hold, fails if one fails."""
    return next((verdict for verdict in (FAILS, UNDECIDED) if verdict in verdicts), HOLDS)


def _around(estimates: Sequence[Estimate | None], centre: float, reach: float) -> Verdict:
    """The claim that all estimates lie within reach of a centre."""
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return _NOT_RUN
    verdicts = [_within(estimate, centre - reach, centre + reach, len(known)) for estimate in known]
    return _all(verdicts), ", ".join(map(str, known))


def _above(
    run: Run, metric: str, a: str, b: str, scenario: str = _CLEVR, background: str = "", masks: str = ""
) -> Verdict:
    """The claim that method a beats method b, by default on the run's first background."""
    where = (scenario, background or run.spec.backgrounds[0])
    if not run.has(*where, a, b):
        return _NOT_RUN
    difference = run.difference(*where, metric, a, b, masks)
    left, right = (run.estimate(*where, method, metric, masks) for method in (a, b))
    if difference is None or left is None or right is None:
        return _NO_SCORES
    return _within(difference, 0), f"{a} {left.mean:.3f}, {b} {right.mean:.3f}, difference {difference}"


def _ranks(run: Run, rank: str, metric: str, method: str, scenario: str = _CLEVR, background: str = "") -> Verdict:
    """The claim that a method ranks first, or last, among the paper's methods without random."""
    where = (scenario, background or run.spec.backgrounds[0])
    others = [m for m in paper()[scenario] if m not in (method, "random")]
    if not run.has(*where, method, *others):
        return _NOT_RUN
    pairs = {other: (method, other) if rank == "first" else (other, method) for other in others}
    leads = {o: lead for o, pair in pairs.items() if (lead := run.difference(*where, metric, *pair)) is not None}
    if not leads:
        return _NO_SCORES
    verdicts = {other: _within(lead, 0, comparisons=len(leads)) for other, lead in leads.items()}
    verdict = _all(verdicts.values())
    # The evidence is the closest of the rivals with this verdict.
    rival = min((o for o in leads if verdicts[o] == verdict), key=lambda o: leads[o].mean)
    return verdict, f"{' over '.join(pairs[rival])}: {leads[rival]}"


def _local_is_vanilla(run: Run) -> Verdict:
    """The claim that agop-local and vanilla have the same scores."""
    both = {"agop-local", "vanilla"}
    values: dict[tuple[Any, ...], dict[str, float | None]] = defaultdict(dict)
    for row in run.rows if both <= set(run.spec.methods) else ():
        where = (row["scenario"], row["background"], row.get("masks"), row["seed"], row["metric"])
        values[where][row["method"]] = row["value"]
    pairs = [(v["agop-local"], v["vanilla"]) for v in values.values() if both <= v.keys()]
    equal = sum(a == b for a, b in pairs)
    evidence = f"{equal} of {len(pairs)} scores are exactly equal"
    return (HOLDS if equal == len(pairs) else FAILS, evidence) if pairs else _NOT_RUN


def _gradcam_misses(run: Run, reach: float, scenarios: Sequence[str] = (_CLEVR,), background: str = "") -> Verdict:
    """The claim that GradCAM's PG is 0 up to `reach`, by default on the run's first background."""
    where = background or run.spec.backgrounds[0]
    known = [name for name in scenarios if run.has(name, where, "gradcam")]
    return _around([run.estimate(name, where, "gradcam", "pointing_game") for name in known], 0.0, reach)


def _chance_on_correlated(run: Run) -> Verdict:
    """On validation data, after one training, which was stopped early if the network was trained again."""
    every, metric = run.with_all_networks(), "accuracy" if run.spec.restarts is None else "first_accuracy"
    scenarios = [scenario for scenario in run.spec.scenarios if scenario not in run.spec.tasks]
    estimates = [every.estimate(scenario, "correlated", "model", metric) for scenario in scenarios]
    verdict, evidence = _around(estimates, 0.5, 0.05)
    attempts = [every.values(scenario, "correlated", "model", "attempts").values() for scenario in scenarios]
    stopped = sum(count > 1 for counts in attempts for count in counts)
    if stopped:
        verdict = UNDECIDED if verdict == HOLDS else verdict  # with more epochs, more networks may learn
        evidence += f"; {counted(stopped, 'training')} stopped after 40 % of the epochs: decide it with --restarts 0"
    return verdict, evidence


def _all_fail_on_xor(run: Run) -> Verdict:
    methods = [method for method in paper()["xor"] if method != "random" and run.has("xor", _CLEAN, method)]
    scores = {m: score for m in methods if (score := run.estimate("xor", _CLEAN, m, "iou"))}
    if not scores:
        return _NOT_RUN
    best, score = max(scores.items(), key=lambda item: item[1].mean)
    verdict = _all([_within(each, -math.inf, 0.01, len(scores)) for each in scores.values()])
    return verdict, f"the paper reports no mIoU above 0.01; {best} has {score}"


def _improves_after_plateau(run: Run) -> Verdict:
    """The mIoU of diag(M) at the end minus its mIoU when accuracy came within 0.01 of its best."""
    values: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in run.convergence:
        ours = row["scenario"] in run.spec.main_scenarios
        if ours and row["background"] == _CLEAN and row["value"] is not None:
            values[row["scenario"], row["seed"]][f"{row['method']} {row['metric']}"][row["step"]] = row["value"]
    gains = []
    for of_seed in values.values():
        accuracy, quality = of_seed["model accuracy"], of_seed["agop-global iou"]
        if accuracy and quality:
            plateau = min(step for step, value in accuracy.items() if value >= max(accuracy.values()) - 0.01)
            if plateau in quality and plateau < max(quality):
                gains.append(quality[max(quality)] - quality[plateau])
    if not gains:
        return _NOT_RUN
    gain = Estimate(tuple(gains))
    return _within(gain, 0), f"change in agop-global's mIoU from there to the end {gain}, over {len(gains)} runs"


def _gradcam_recovers(run: Run) -> Verdict:
    finer = next((method for method in run.spec.methods if method.startswith("gradcam@")), None)
    return _NOT_RUN if finer is None else _above(run, "pointing_game", finer, "gradcam")


def _predicts(run: Run, *metrics: str) -> Verdict:
    """The claim that the first metric, minus the second if there is one, ranks methods as average precision does."""
    estimates = {scenario: _agreement(run, scenario, metrics) for scenario in run.spec.main_scenarios}
    known = {scenario: estimate for scenario, estimate in estimates.items() if estimate is not None}
    return _each_above(known, 0, len(known)) if known else _NOT_RUN


def _each_above(by_name: Mapping[str, Estimate | Ratio], bar: float, comparisons: int) -> Verdict:
    """The claim that every value is above a bar, with the values by name as the evidence."""
    verdicts = [_within(value, bar, comparisons=comparisons) for value in by_name.values()]
    return _all(verdicts), ", ".join(f"{name} {value}" for name, value in by_name.items())


def _agreement(run: Run, scenario: str, metrics: Sequence[str]) -> Estimate | None:
    """Rank correlation over methods in each seed, on the scenario's first background."""
    background = next(b for b in run.spec.backgrounds if run.spec.has(scenario, b))
    methods = [m for m in competing(run) if m != "agop-local" or "vanilla" not in run.spec.methods]
    pairs: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for method in methods:
        truth = run.values(scenario, background, method, _PRECISION)
        parts = [run.values(scenario, background, method, metric, run.spec.masks) for metric in metrics]
        for seed in set(truth).intersection(*parts):
            gain = parts[0][seed] - sum(part[seed] for part in parts[1:])
            pairs[seed].append((gain, truth[seed]))
    enough = [pairs[seed] for seed in sorted(pairs) if len(pairs[seed]) >= _FEWEST_METHODS]
    correlations = [spearman(*zip(*both, strict=True)) for both in enough]
    values = [0.0 if math.isnan(correlation) else correlation for correlation in correlations]  # all gains equal
    return Estimate(tuple(values), (-1, 1)) if values else None


def _reaches(run: Run, bars: dict[str, float], scenario: str | None = None, masks: str = "") -> Verdict:
    """The claim that agop's AP, divided by that of the paper's best method, reaches a bar in every scenario.

    Bars are by kind of masks. By default the scenarios are those of the main networks.
    """
    scenarios = run.spec.main_scenarios if scenario is None else (scenario,)
    ratios = {name: ratio for name in scenarios if (ratio := _to_papers_best(run, name, masks)) is not None}
    bar = bars.get(masks or run.masks)
    if len(ratios) < len(scenarios) or bar is None:
        return _NOT_RUN
    # The best of the paper's methods is chosen on the same data.
    verdict, evidence = _each_above(ratios, bar, len(ratios) * len(paper()["linear"]))
    return verdict, f"bar {bar:g}: {evidence}"


def _to_papers_best(run: Run, scenario: str, masks: str = "") -> Ratio | None:
    """AP of agop divided by that of the best of the paper's methods, on the scenario's first background."""
    papers = list(paper()["linear"])
    background = next((b for b in run.spec.backgrounds if run.spec.has(scenario, b)), None)
    if background is None or not run.has(scenario, background, "agop", *papers):
        return None
    own, *others = (run.values(scenario, background, m, _PRECISION, masks) for m in ("agop", *papers))
    others = [values for values in others if values]
    if not own or not others:
        return None
    best = max(others, key=lambda values: sum(values.values()) / len(values))
    both = sorted(own.keys() & best.keys())
    return Ratio(tuple(own[key] for key in both), tuple(best[key] for key in both))


_IG, _MOVING = "integrated-gradients", "translations_rotations"
_AP = "Beyond the paper: agop's AP divided by that of the paper's best method"
_IN_CELL = "Beyond the paper: more of agop's map than of GradCAM's is in the cell of its class"
_OF_BEST = "Follow-up: diag(M) of the best weights beats diag(M) of the training in mIoU"
_PAPERS_XAI_TRIS: tuple[Claim, ...] = (
    ("AGOP-Weighted beats IG in mIoU on linear", _above, "iou", "agop-weighted", _IG, "linear", _CLEAN),
    ("AGOP-Weighted beats IG in Energy on linear", _above, "energy", "agop-weighted", _IG, "linear", _CLEAN),
    ("AGOP-Global beats IG in mIoU on multiplicative", _above, "iou", "agop-global", _IG, "multiplicative", _CLEAN),
    ("IG scores below random in mIoU on multiplicative", _above, "iou", "random", _IG, "multiplicative", _CLEAN),
    ("IG ranks first in mIoU on translations_rotations", _ranks, "first", "iou", _IG, _MOVING, _CLEAN),
    ("AGOP-Global ranks last in mIoU on translations_rotations", _ranks, "last", "iou", "agop-global", _MOVING, _CLEAN),
    ("GradCAM's PG is 0 where positions are fixed", _gradcam_misses, 0.01, FIXED, _CLEAN),
    ("AGOP-Local equals VanillaGrad", _local_is_vanilla),
    ("Accuracy is about 50 % on correlated backgrounds", _chance_on_correlated),
    ("diag(M) improves after accuracy has levelled off", _improves_after_plateau),
    ("All methods fail on XOR", _all_fail_on_xor),
)
_PAPERS_CLEVR: tuple[Claim, ...] = (
    ("AGOP-Global beats IG in mIoU", _above, "iou", "agop-global", _IG),
    ("AGOP-Weighted beats IG in mIoU", _above, "iou", "agop-weighted", _IG),
    ("AGOP-Global beats AGOP-Weighted in mIoU", _above, "iou", "agop-global", "agop-weighted"),
    ("IG ranks first in PG", _ranks, "first", "pointing_game", _IG),
    ("SmoothGrad ranks first in mIoU", _ranks, "first", "iou", "smoothgrad"),
    ("GradCAM's PG collapses to 0 on a 2×2 map", _gradcam_misses, 0.02),
    ("AGOP-Local equals VanillaGrad", _local_is_vanilla),
    ("Follow-up: GradCAM's PG recovers on a finer layer", _gradcam_recovers),
    ("Follow-up: AGOP-Global beats a centred blob in mIoU", _above, "iou", "agop-global", "centre"),
    ("Follow-up: AGOP-Global beats the mean training mask in mIoU", _above, "iou", "agop-global", "mean-mask"),
    ("Follow-up: AGOP-Global beats the mean training mask in AP", _above, _PRECISION, "agop-global", "mean-mask"),
    ("Follow-up: AGOP-Weighted beats the mean training mask in AP", _above, _PRECISION, "agop-weighted", "mean-mask"),
    ("Follow-up: AGOP-Weighted also beats IG in Rank", _above, "rank_accuracy", "agop-weighted", _IG),
    (_OF_BEST, _above, "iou", "agop-global", "agop-global@training"),
)
_SRG: tuple[Claim, ...] = (
    ("Follow-up: SRG predicts AP (Spearman over methods; fill: pixels of training images)", _predicts, "srg"),
    ("Follow-up: SRG predicts AP (Spearman over methods; fill: zero)", _predicts, "insertion", "deletion"),
)
_XAI_TRIS: tuple[Claim, ...] = ((f"{_AP}, every scenario", _reaches, {"own": 0.9, "union": 0.93}),)
_COMPOSITE: tuple[Claim, ...] = (
    (f"{_AP}, moving digits", _reaches, {"own": 1.5}, "composite"),
    (f"{_AP}, digits in a grid", _reaches, {OBJECT: 1.5}, "composite", OBJECT),
    (_IN_CELL, _above, "energy", "agop", "gradcam", "composite", "", CELL),
)
_CLEVR_XAI: tuple[Claim, ...] = ((_AP, _reaches, {"all_objects": 1.25}),)
# Questions of ours, not of the paper.
_OURS = (*_SRG, *_XAI_TRIS, *_COMPOSITE, *_CLEVR_XAI)
_CLAIMS = {
    "xai-tris": (*_PAPERS_XAI_TRIS, *_SRG, *_XAI_TRIS),
    "clevr-xai": (*_PAPERS_CLEVR, *_SRG, *_CLEVR_XAI),
    "xai-tris-64": _SRG,
    "composite": (*_SRG, *_COMPOSITE),
}
