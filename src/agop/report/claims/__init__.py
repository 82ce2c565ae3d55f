"""The paper's claims, each checked against the rows: holds, fails or undecided, with the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from agop.report.claims import beyond, clevr_xai, srg, xai_tris
from agop.report.claims.verdicts import FAILS, HOLDS, UNDECIDED, Checked, Claim, not_run
from agop.report.run import Run

_FEW = 6
_CLAIMS = {
    "xai-tris": (*xai_tris.CLAIMS, *srg.CLAIMS, *beyond.XAI_TRIS),
    "clevr-xai": (*clevr_xai.CLAIMS, *srg.CLAIMS, *beyond.CLEVR_XAI),
    "xai-tris-64": srg.CLAIMS,
    "composite": (*srg.CLAIMS, *beyond.COMPOSITE),
}
# Questions of ours, not of the paper.
_OURS = (*srg.CLAIMS, *beyond.XAI_TRIS, *beyond.COMPOSITE, *beyond.CLEVR_XAI)
# Ground truths under which claims are checked, if a run has several.
_TRUTHS = ("own", "union")


def check(run: Run) -> list[Checked]:
    """The claims about methods and scenarios of the run, in the paper's order, under each ground truth.

    None without training.
    """
    return [] if run.spec.epochs == 0 else _checked(run, _CLAIMS.get(run.spec.benchmark, ()))


def _checked(run: Run, claims: Sequence[Claim]) -> list[Checked]:
    kinds = [kind for kind in run.kinds if kind in _TRUTHS] or [run.masks]
    views = {kind: run.with_masks(kind) for kind in kinds}
    checked = []
    for claim, verdict in claims:
        results = {kind: verdict(view) for kind, view in views.items()}
        if not_run() in results.values():
            continue
        verdicts, evidence = ({kind: result[part] for kind, result in results.items()} for part in (0, 1))
        checked.append(Checked(claim, verdicts, evidence))
    return checked


def heading(run: Run) -> str:
    """The title of the claims: the paper has none about some benchmarks."""
    return "The paper's claims" if run.spec.benchmark in ("xai-tris", "clevr-xai") else "Follow-up questions"


def remarks(run: Run) -> list[str]:
    """Sentences on results beyond the paper's claims."""
    sentences = clevr_xai.remarks(run) if run.spec.benchmark == "clevr-xai" else []
    if run.spec.epochs == 0 and run.spec.benchmark in _CLAIMS:
        sentences.append("The networks have random weights: what scores above random shows the image, not the model.")
    changed = [f"“{claim.claim}” ({claim.verdict})" for claim in check(run) if len(set(claim.verdicts.values())) > 1]
    if changed:
        sentences.append(f"These verdicts depend on the ground truth: {'; '.join(changed)}.")
    if missing := _missing(run):
        sentences.append(
            f"Not checked: {missing} claim{'' if missing == 1 else 's'} of the paper, about methods or scenarios that "
            "this run doesn't have."
        )
    if excluded := _excluded(run):
        sentences.append(f"Not learned, and therefore excluded from means and claims: {'; '.join(excluded)}.")
    if run.spec.intervals == "seeds" and 1 < run.spec.seeds < _FEW:
        sentences.append(f"With {run.spec.seeds} seeds the intervals are wide: --seeds 10 decides more claims.")
    return sentences


def _missing(run: Run) -> int:
    """Number of the paper's claims that the run can't decide."""
    claims = [claim for claim in _CLAIMS.get(run.spec.benchmark, ()) if claim not in _OURS]
    return 0 if run.spec.epochs == 0 else len(claims) - len(_checked(run, claims))


def _excluded(run: Run) -> list[str]:
    """Places with networks that didn't learn their task, and how accurate these are."""
    places = dict.fromkeys(place[:2] for place in run.places)
    lines = []
    for scenario, background in places:
        seeds = run.not_learned(scenario, background)
        accuracies = run.with_all_networks().values(scenario, background, "model", "accuracy")
        if seeds:
            mean = sum(accuracies[seed] for seed in seeds) / len(seeds)
            lines.append(f"{scenario} / {background}, {len(seeds)} of {run.spec.seeds} seeds (accuracy {mean:.3f})")
    return lines


__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Checked", "check", "heading", "remarks"]
