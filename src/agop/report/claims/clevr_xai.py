"""The paper's claims about CLEVR-XAI, and follow-up questions."""

from __future__ import annotations

from collections.abc import Callable

from agop.report.claims.verdicts import HOLDS, Claim, Verdict, above, bounded, extreme, local_is_vanilla, not_run
from agop.report.run import Run

_NAME = "clevr-xai"
_NEAR_ZERO = 0.02


def _on_run(make: Callable[[str], Callable[[Run], Verdict]]) -> Callable[[Run], Verdict]:
    """Verdict on the run's own images, official or drawn."""
    return lambda run: make(run.spec.backgrounds[0])(run)


def _above(metric: str, a: str, b: str) -> Callable[[Run], Verdict]:
    return _on_run(lambda background: above(_NAME, background, metric, a, b))


def _first(metric: str, method: str) -> Callable[[Run], Verdict]:
    return _on_run(lambda background: extreme(_NAME, background, metric, method, first=True))


def _gradcam_collapses(run: Run) -> Verdict:
    score = run.estimate(_NAME, run.spec.backgrounds[0], "gradcam", "pointing_game")
    return bounded([] if score is None else [score], 0.0, _NEAR_ZERO)


def _gradcam_recovers(run: Run) -> Verdict:
    finer = next((method for method in run.spec.methods if method.startswith("gradcam@")), None)
    return not_run() if finer is None else _above("pointing_game", finer, "gradcam")(run)


def remarks(run: Run) -> list[str]:
    """One sentence if AGOP-Global doesn't beat the controls."""
    controls = ("centre", "mean-mask")
    metrics = [metric for metric in ("iou", "energy", "average_precision") if metric in run.spec.metrics]
    if not run.has(_NAME, run.spec.backgrounds[0], "agop-global", *controls):
        return []
    lost = [
        f"{control} in {run.metrics[metric]['label']}"
        for control in controls
        for metric in metrics
        if _above(metric, "agop-global", control)(run)[0] != HOLDS
    ]
    if not lost:
        return []
    result = f"AGOP-Global scores no better than model-independent controls ({', '.join(lost)})"
    return [f"{result}: its scores there may only reflect where objects tend to be."]


CLAIMS: tuple[Claim, ...] = (
    ("AGOP-Global beats IG in mIoU", _above("iou", "agop-global", "integrated-gradients")),
    ("AGOP-Weighted beats IG in mIoU", _above("iou", "agop-weighted", "integrated-gradients")),
    ("AGOP-Global beats AGOP-Weighted in mIoU", _above("iou", "agop-global", "agop-weighted")),
    ("IG ranks first in PG", _first("pointing_game", "integrated-gradients")),
    ("SmoothGrad ranks first in mIoU", _first("iou", "smoothgrad")),
    ("GradCAM's PG collapses to 0 on a 2×2 map", _gradcam_collapses),
    ("AGOP-Local equals VanillaGrad", local_is_vanilla),
    ("Follow-up: GradCAM's PG recovers on a finer layer", _gradcam_recovers),
    ("Follow-up: AGOP-Global beats a centred blob in mIoU", _above("iou", "agop-global", "centre")),
    ("Follow-up: AGOP-Global beats the mean training mask in mIoU", _above("iou", "agop-global", "mean-mask")),
    (
        "Follow-up: AGOP-Global beats the mean training mask in AP",
        _above("average_precision", "agop-global", "mean-mask"),
    ),
    (
        "Follow-up: AGOP-Weighted beats the mean training mask in AP",
        _above("average_precision", "agop-weighted", "mean-mask"),
    ),
    (
        "Follow-up: AGOP-Weighted also beats IG in Rank",
        _above("rank_accuracy", "agop-weighted", "integrated-gradients"),
    ),
    (
        "Follow-up: diag(M) of the best weights beats diag(M) of the training in mIoU",
        _above("iou", "agop-global", "agop-global@training"),
    ),
)
