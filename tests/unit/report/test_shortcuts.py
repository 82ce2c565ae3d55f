"""The summary of `agop bench shortcuts`."""

from dataclasses import replace

import numpy as np
import pytest

from agop.report.shortcuts import LEARNED, Score, Summary, markdown
from agop.runs.shortcuts import Detection, ModelResult, ShortcutSpec

SPEC = ShortcutSpec(5, 600, 32, 1, ("audit", "spray"))


def model(prevalence="confounder", drop=0.3, audit=2.0, spray=0.5, found=True, seed=0, **options):
    detections = {"audit": Detection(audit, 2.0, found, 0.5), "spray": Detection(spray, 1.0, None, 0.1)}
    values = {"kind": "patch", "strength": "strong", "accuracy": 0.9, "change": 0.2, "fixed": True, "findings": ()}
    values |= {"share": 2.0, "transplant": 0.1}
    return ModelResult(prevalence=prevalence, drop=drop, seed=seed, detections=detections, **values | options)


def models(seed=0):
    """Models with random alarms, some of them equal."""
    random = np.random.default_rng(seed)
    return [
        model(prevalence, audit=float(alarms[0] + 2 * (prevalence == "confounder")), spray=float(alarms[1]), seed=place)
        for place, (prevalence, alarms) in enumerate(
            zip(["confounder", "balanced", "none"] * 5, random.integers(0, 4, (15, 2)), strict=True)
        )
    ]


def by_pairs(summary, detector):
    """The AUROC by a loop over pairs of models."""
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in (result.detections[detector].alarm for result in summary.learned)
        for b in (result.detections[detector].alarm for result in summary.without)
    ]
    return sum(wins) / len(wins)


@pytest.mark.parametrize("seed", range(3))
def test_auroc_is_the_share_of_pairs_and_differences_are_paired(seed):
    summary = Summary.of(models(seed))
    audit, spray = (summary.auroc(name) for name in ("audit", "spray"))
    assert audit.value == pytest.approx(by_pairs(summary, "audit"))
    assert spray.value == pytest.approx(by_pairs(summary, "spray"))
    assert audit.interval[0] <= audit.value <= audit.interval[1]
    assert summary.auroc_difference("audit", "spray").value == pytest.approx(audit.value - spray.value)
    assert summary.auroc_difference("audit", "audit") == Score(0.0, (0.0, 0.0))


def test_perfect_alarms():
    summary = Summary.of([model(audit=5.0), model(audit=4.0), model("none", audit=1.0), model("none", audit=0.0)])
    assert summary.auroc("audit") == Score(1.0, (1.0, 1.0))


@pytest.mark.parametrize(
    ("found", "count", "interval"),
    [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (5, 10, (0.2366, 0.7634)), (1, 100, (0.00177, 0.05449))],
)
def test_share_found_has_wilsons_interval(found, count, interval):
    """Values of Newcombe (1998) and of statsmodels' proportion_confint."""
    results = [model(found=place < found) for place in range(count)]
    share = Summary.of(results).share_found(results)
    assert share.value == found / count
    assert share.interval == pytest.approx(interval, abs=1e-4)


def test_models_are_sorted_by_what_they_learned():
    learned, at_the_limit, ignored = model(drop=0.5), model(drop=LEARNED), model(drop=0.09)
    balanced, clean = model("balanced", drop=0.5), model("none", drop=0.0, kind="clean")
    summary = Summary.of([learned, ignored, balanced, at_the_limit, clean])
    assert summary.learned == (learned, at_the_limit)
    assert summary.without == (balanced, clean)
    assert summary.not_learned == (ignored,)


def test_overlap_is_zero_if_no_region_is_named():
    named, unnamed, moving = model(), model(), model(fixed=False)
    unnamed = replace(unnamed, detections={"audit": Detection(0.0, 1.0, False, None)})
    assert Summary.of([named, unnamed, moving]).overlaps("audit") == [0.5, 0.0]


def test_markdown_has_every_detector_and_every_kind():
    results = [model(), model("balanced", found=False), model("none", kind="clean", found=False, fixed=False)]
    results += [model(kind="sticker", drop=0.0, fixed=False)]
    text = markdown(SPEC, results)
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert {"audit", "spray", "patch", "clean", "sticker"} <= set(rows)
    assert "4 models on drawn digits: 5 classes, 600 images, 32×32,\nseeds 0." in text
    assert "1 learned a planted shortcut. 2 have none" in text
    assert "| sticker | strong | 0 of 1 | 0 | 0 | 0 |" in text
    assert "| patch | strong | 1 of 1 | 1 | 1 | 0 |" in text


def test_markdown_compares_places_with_and_without_the_plant():
    results = [model(share=3.0, transplant=0.4), model("balanced", share=1.0, transplant=-0.02)]
    assert "| patch | strong | 0 | 3.00 / +0.40 | 1.00 / -0.02 |" in markdown(SPEC, results)


def test_markdown_without_models_to_compare_has_no_auroc():
    assert "AUROC" not in markdown(SPEC, [model()])
