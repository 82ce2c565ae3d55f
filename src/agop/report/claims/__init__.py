"""The paper's claims, each checked against the rows: holds, fails or undecided, with the figures."""

from __future__ import annotations

from agop.report.claims import clevr_xai, xai_tris
from agop.report.claims.verdicts import FAILS, HOLDS, UNDECIDED, Checked
from agop.report.run import Run

_BENCHMARKS = {"xai-tris": xai_tris.CLAIMS, "clevr-xai": clevr_xai.CLAIMS}


def check(run: Run) -> list[Checked]:
    """Every claim about the run's benchmark, in the paper's order."""
    return [Checked(claim, *verdict(run)) for claim, verdict in _BENCHMARKS.get(run.spec.benchmark, ())]


def remarks(run: Run) -> list[str]:
    """What the rows say beyond the paper's claims, in sentences."""
    return clevr_xai.remarks(run) if run.spec.benchmark == "clevr-xai" else []


__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Checked", "check", "remarks"]
