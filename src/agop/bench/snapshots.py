"""Rows of a training's snapshots: how accuracy and the AGOP methods converge."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from agop import metrics
from agop.evaluating.scoring import accuracy, summary
from agop.explaining.explain import explain
from agop.runs.rows import Row, row
from agop.scenarios import Scenario, Split
from agop.statistic.agop import AGOP

_METHODS = ("agop-global", "agop-weighted")
_METRICS = ("iou", "energy", "average_precision")


def snapshot_rows(scenario: Scenario, validation: Split, *, signed: bool) -> Callable[[nn.Module, AGOP], list[Row]]:
    """A function of the model and the prior at one step → the rows of that step."""
    few = validation.first(scenario.snapshot_images)

    def rows(model: nn.Module, prior: AGOP) -> list[Row]:
        correct = accuracy(model, validation.images, validation.labels)
        result = [row("model", "accuracy", correct, len(validation))]
        for method in _METHODS if prior.diagonal.any() else ():  # zero if the logits don't depend on the image
            maps = explain(model, few.images, method, prior)
            for metric in _METRICS:
                mean = summary(metrics.get(metric)(maps, few.masks, signed=signed), [])
                result.append(row(method, metric, mean["value"], mean["n"]))
        return result

    return rows
