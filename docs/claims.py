"""Claims of the paper with their verdicts, read from the results pages."""

from __future__ import annotations

import re
from pathlib import Path

# Claims that the paper does not make.
_OURS = ("Follow-up", "Beyond the paper")
_CLAIM = re.compile(r"^\| (.+?) \| (\*\*\w+\*\*) \|", re.MULTILINE)


def claims_table(*benchmarks: str) -> str:
    """Markdown table of benchmark, claim and verdict."""
    rows = ["| benchmark | claim | verdict |", "|---|---|---|"]
    for name in benchmarks:
        page = (Path(__file__).parent / "results" / f"{name}.md").read_text(encoding="utf-8")
        section = page.split("## The paper's claims")[1].split("\n## ")[0]
        claims = [pair for pair in _CLAIM.findall(section) if not pair[0].startswith(_OURS)]
        rows += [f"| {name} | {claim} | {verdict} |" for claim, verdict in claims]
    return "\n".join(rows)
