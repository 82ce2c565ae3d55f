"""Collector: adds a batch to the sums, for the training hook and fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import GradientError, InputError, NoSamplesError
from agop.model.probe import Gradients, check_images, joined, probing
from agop.model.targets import check_range, class_count, labels_for
from agop.statistic.accumulator import Accumulator


class Collector:
    """Adds batches to an accumulator by the paper's rule: gradients of the predicted class's logit.

    With only_correct, samples with a wrong prediction are skipped.
    """

    def __init__(self, only_correct: bool, per_class: bool, nan: str) -> None:
        if nan not in ("raise", "skip"):
            raise InputError(f"nan is {nan!r}: give 'raise' or 'skip'")
        self.only_correct, self.nan = only_correct, nan
        self.sums = Accumulator(per_class)
        self.seen = 0
        # False while a batch is being added: if the process is stopped then, sums and counts don't match.
        self.consistent = True

    @property
    def options(self) -> dict[str, Any]:
        """The options, for the provenance."""
        return {"only_correct": self.only_correct, "per_class": self.sums.per_class, "nan": self.nan}

    def add(self, model: nn.Module, images: Tensor, labels: Any, rows: int | None = None) -> None:
        """Compute gradients and add them, at most `rows` images per pass. If it raises, the sums don't change."""
        check_images(images)
        truth = self._truth(labels, len(images))
        with probing(model) as probe:
            gradients = joined([probe.gradients(part) for part in torch.split(images, rows or len(images))])
        self._count(gradients, truth)

    def count(self, gradients: Gradients, labels: Any) -> None:
        """Add the gradients of a batch for the predicted classes."""
        self._count(gradients, self._truth(labels, len(gradients.values)))

    def _count(self, gradients: Gradients, truth: Tensor | None) -> None:
        classes = class_count(gradients.logits)
        self.sums.check(classes, gradients.values.shape[1:])
        counted = gradients.targets.new_ones(len(gradients.values)).bool()
        if truth is not None:
            truth = truth.to(gradients.targets.device)
            check_range(truth, classes, "label")
            if self.only_correct:
                counted = gradients.targets == truth
        finite = gradients.values.flatten(1).isfinite().all(dim=1)
        self._check(counted & ~finite)
        keep = counted & finite
        everyone = bool(keep.all())
        self.consistent = False
        self.sums.update(
            gradients.values if everyone else gradients.values[keep],
            gradients.targets if everyone else gradients.targets[keep],
            classes,
        )
        self.sums.skipped += int((counted & ~finite).sum())
        if truth is not None:
            self.sums.labelled += len(truth)
            self.sums.correct += int((gradients.targets == truth).sum())
        self.seen += len(gradients.values)
        self.consistent = True

    def total(self, if_nothing_seen: str) -> Accumulator:
        """The sums of all ranks. Raises NoSamplesError with the reason if no sample was counted."""
        sums = self.sums.sync()
        if sums.count:
            return sums
        reason = if_nothing_seen
        if sums.skipped:
            reason = f"{sums.skipped} had NaN or infinite gradients: check the images and the weights"
        elif self.seen:
            reason = (
                f"none of {self.seen} was classified correctly: train longer, check the labels, or set "
                "only_correct=False"
            )
        raise NoSamplesError(f"no sample was counted: {reason}")

    def _truth(self, labels: Any, samples: int) -> Tensor | None:
        if labels is None and self.only_correct:
            raise InputError("only_correct=True needs labels: pass them, or set only_correct=False")
        return None if labels is None else labels_for(labels, samples)

    def _check(self, broken: Tensor) -> None:
        if self.nan == "raise" and bool(broken.any()):
            sample = int(broken.nonzero()[0])
            raise GradientError(
                f"the gradient of sample {sample} of this batch is NaN or infinite ({int(broken.sum())} of "
                f"{len(broken)} samples): check the images and weights, or pass nan='skip' to skip these samples"
            )
