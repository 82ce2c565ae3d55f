"""Scores on all test images beside those on the images that every network classifies correctly."""

from __future__ import annotations

from agop.report.estimate import Estimate
from agop.report.run import Run
from agop.report.winners import competing, headline

METRIC = "average_precision"


Both = tuple[Estimate | None, Estimate | None]


def image_choices(run: Run) -> tuple[str, dict[str, dict[str, Both]]]:
    """The metric, and scores by place and method: on all test images, and on those classified correctly.

    There are no places if the run has only one of the two choices.
    """
    metric = METRIC if METRIC in run.spec.metrics else headline(run)
    if run.only_correct or not run.records_correct:
        return metric, {}
    view = run.with_correct_images()
    return metric, {
        " / ".join(place): {
            method: (run.estimate(*place, method, metric), view.estimate(*place, method, metric))
            for method in competing(run)
        }
        for place in dict.fromkeys(place[:2] for place in run.places)
    }
