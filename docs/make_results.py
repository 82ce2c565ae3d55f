"""Write docs/results.md to standard output, from three run folders: XAI-TRIS, xor with signed masks, CLEVR-XAI."""

from __future__ import annotations

import sys
from pathlib import Path

from agop.report.formats.markdown import markdown
from agop.report.run import Run, paper


def signed_table(true: Run, signed: Run) -> list[str]:
    """Xor with the two kinds of masks, and the paper's figures: PG, mIoU and Energy."""
    metrics = ("pointing_game", "iou", "energy")
    lines = ["| method | true masks | signed masks | the paper |", "|---|---|---|---|"]
    for method in true.spec.methods:
        cells = [
            " / ".join(
                f"{e.mean:.3f}" if (e := run.estimate("xor", "uncorrelated", method, m)) else "–" for m in metrics
            )
            for run in (true, signed)
        ]
        told = " / ".join(f"{paper()['xor'][method][m]:.3f}" for m in metrics)
        lines.append(f"| {method} | {cells[0]} | {cells[1]} | {told} |")
    return lines


def convergence_table(run: Run, background: str) -> list[str]:
    """Accuracy and the mIoU of the AGOP methods at a few steps, means over seeds."""
    steps = sorted({row["step"] for row in run.convergence})
    shown = [steps[round(k * (len(steps) - 1) / 6)] for k in range(7)]
    lines = ["| scenario | | " + " | ".join(map(str, shown)) + " |", "|---|---" + "|---" * len(shown) + "|"]
    for scenario in run.spec.scenarios:
        for method, metric in (("model", "accuracy"), ("agop-global", "iou"), ("agop-weighted", "iou")):
            cells = []
            for step in shown:
                values = [
                    row["value"] for row in run.convergence
                    if (row["scenario"], row["background"], row["step"]) == (scenario, background, step)
                    and (row["method"], row["metric"]) == (method, metric) and row["value"] is not None
                ]  # fmt: skip
                cells.append(f"{sum(values) / len(values):.3f}" if values else "–")
            lines.append(f"| {scenario} | {method} {metric} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """The report of XAI-TRIS, then what the signs in the masks do, then convergence, then CLEVR-XAI."""
    true, signed, clevr = (Run(Path(folder)) for folder in sys.argv[1:4])
    lines = [
        markdown(true),
        "## XOR: what the signs in the masks do",
        "",
        "PG / mIoU / Energy-GT. IoU and energy of a non-negative map cannot be negative, yet the paper's XOR table",
        "has negative ones. The public generator's xor mask keeps the signs of the two shapes (−1, 0, 1). Used as a",
        "mask it cancels: AGOP-Global's IoU and energy are about zero and its PG is at most about one half, as in the",
        "paper; what is left of the other methods' scores, and its sign, changes from seed to seed.",
        f"Made by `{signed.about['command']}`.",
        "",
        *signed_table(true, signed),
        "",
        "## Convergence",
        "",
        "Validation data, by training step; diag(M) as collected up to that step, the model's weights of that step.",
        "",
        *convergence_table(true, "uncorrelated"),
        "",
        markdown(clevr),
        "## Convergence on CLEVR-XAI",
        "",
        "100 validation samples, by training step, `all_objects` masks.",
        "",
        *convergence_table(clevr, clevr.spec.backgrounds[0]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
