"""The paper's claims about CLEVR-XAI, and what a second look asks of them."""

from __future__ import annotations

from collections.abc import Callable

from agop.report.claims.verdicts import HOLDS, Claim, Verdict, above, bounded, extreme, local_is_vanilla, not_run
from agop.report.run import Run

_NAME = "clevr-xai"
_NEAR_ZERO = 0.02


def _here(make: Callable[[str], Callable[[Run], Verdict]]) -> Callable[[Run], Verdict]:
    """A verdict on the run's own pictures, official or drawn."""
    return lambda run: make(run.spec.backgrounds[0])(run)


def _above(metric: str, a: str, b: str) -> Callable[[Run], Verdict]:
    return _here(lambda background: above(_NAME, background, metric, a, b))


def _first(metric: str, method: str) -> Callable[[Run], Verdict]:
    return _here(lambda background: extreme(_NAME, background, metric, method, first=True))


def _gradcam_collapses(run: Run) -> Verdict:
    found = run.estimate(_NAME, run.spec.backgrounds[0], "gradcam", "pointing_game")
    return bounded([] if found is None else [found], 0.0, _NEAR_ZERO)


def _gradcam_recovers(run: Run) -> Verdict:
    finer = next((method for method in run.spec.methods if method.startswith("gradcam@")), None)
    return not_run() if finer is None else _above("pointing_game", finer, "gradcam")(run)


def remarks(run: Run) -> list[str]:
    """What the controls say, in a sentence."""
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
    told = "AGOP-Global scores no better than maps that know nothing of the model"
    return [f"{told} ({', '.join(lost)}): what it scores there may be no more than where objects tend to stand."]


CLAIMS: tuple[Claim, ...] = (
    ("AGOP-Global is above IG in mIoU", _above("iou", "agop-global", "integrated-gradients")),
    ("AGOP-Weighted is above IG in mIoU", _above("iou", "agop-weighted", "integrated-gradients")),
    ("AGOP-Global is above AGOP-Weighted in mIoU", _above("iou", "agop-global", "agop-weighted")),
    ("IG is first in PG", _first("pointing_game", "integrated-gradients")),
    ("SmoothGrad is first in mIoU", _first("iou", "smoothgrad")),
    ("GradCAM's PG collapses to 0 on a 2×2 map", _gradcam_collapses),
    ("AGOP-Local is VanillaGrad", local_is_vanilla),
    ("Second look: GradCAM recovers on a finer layer, in PG", _gradcam_recovers),
    ("Second look: AGOP-Global is above a blob in the centre, in mIoU", _above("iou", "agop-global", "centre")),
    ("Second look: AGOP-Global is above the mean training mask, in mIoU", _above("iou", "agop-global", "mean-mask")),
    (
        "Second look: AGOP-Global is above the mean training mask, in AP",
        _above("average_precision", "agop-global", "mean-mask"),
    ),
    (
        "Second look: AGOP-Weighted is above the mean training mask, in AP",
        _above("average_precision", "agop-weighted", "mean-mask"),
    ),
    (
        "Second look: AGOP-Weighted is above IG by rank, too (Rank)",
        _above("rank_accuracy", "agop-weighted", "integrated-gradients"),
    ),
    (
        "Second look: diag(M) of the best weights is above that of the training, in mIoU",
        _above("iou", "agop-global", "agop-global@training"),
    ),
)
