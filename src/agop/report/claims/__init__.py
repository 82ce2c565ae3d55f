"""The paper's claims, each checked against the rows: holds, fails or undecided, with the evidence."""

from __future__ import annotations

from agop.report.claims import clevr_xai, xai_tris
from agop.report.claims.verdicts import FAILS, HOLDS, UNDECIDED, Checked
from agop.report.run import Run

_FEW = 6
_BENCHMARKS = {"xai-tris": xai_tris.CLAIMS, "clevr-xai": clevr_xai.CLAIMS}


def check(run: Run) -> list[Checked]:
    """Every claim about the run's benchmark, in the paper's order."""
    return [Checked(claim, *verdict(run)) for claim, verdict in _BENCHMARKS.get(run.spec.benchmark, ())]


def remarks(run: Run) -> list[str]:
    """Sentences on results beyond the paper's claims."""
    sentences = clevr_xai.remarks(run) if run.spec.benchmark == "clevr-xai" else []
    if run.spec.intervals == "seeds" and 1 < run.spec.seeds < _FEW:
        sentences.append(f"With {run.spec.seeds} seeds the intervals are wide: --seeds 10 decides more claims.")
    return sentences


__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Checked", "check", "remarks"]
