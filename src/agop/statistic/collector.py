"""One batch into the sums: the step that the training hook and fit share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import GradientError, InputError, NoSamplesError
from agop.model.probe import Gradients, check_images, joined, probing
from agop.model.targets import check_range, class_count, labels_for
from agop.statistic.accumulator import Accumulator


class Collector:
    """Adds batches to an accumulator by the paper's rule: the predicted class's logit, and with
    only_correct only the samples whose prediction is their label.
    """

    def __init__(self, only_correct: bool, per_class: bool, nan: str) -> None:
        if nan not in ("raise", "skip"):
            raise InputError(f"nan is {nan!r}: give 'raise' or 'skip'")
        self.only_correct, self.nan = only_correct, nan
        self.sums = Accumulator(per_class)
        self.seen = 0
        # False while a batch is being added: the sums of a process that is ended just then do not fit their counts.
        self.whole = True

    @property
    def options(self) -> dict[str, Any]:
        """What decides which samples count and how."""
        return {"only_correct": self.only_correct, "per_class": self.sums.per_class, "nan": self.nan}

    def add(self, model: nn.Module, images: Tensor, labels: Any, rows: int | None = None) -> None:
        """One pass over a batch, or several of so many rows. If it raises, the sums are as they were."""
        check_images(images)
        truth = self._truth(labels, len(images))
        with probing(model) as probe:
            found = joined([probe.gradients(part) for part in torch.split(images, rows or len(images))])
        self._count(found, truth)

    def count(self, found: Gradients, labels: Any) -> None:
        """Add the gradients of a batch for the predicted classes."""
        self._count(found, self._truth(labels, len(found.values)))

    def _count(self, found: Gradients, truth: Tensor | None) -> None:
        counted = found.targets.new_ones(len(found.values)).bool()
        if truth is not None:
            truth = truth.to(found.targets.device)
            check_range(truth, class_count(found.logits), "label")
            if self.only_correct:
                counted = found.targets == truth
        finite = found.values.flatten(1).isfinite().all(dim=1)
        self._check(counted & ~finite)
        keep = counted & finite
        everyone = bool(keep.all())
        self.whole = False
        self.sums.update(
            found.values if everyone else found.values[keep],
            found.targets if everyone else found.targets[keep],
            class_count(found.logits),
        )
        self.sums.skipped += int((counted & ~finite).sum())
        self.seen += len(found.values)
        self.whole = True

    def total(self, if_nothing_seen: str) -> Accumulator:
        """The sums of all ranks; an error that says why if no sample counts."""
        sums = self.sums.sync()
        if sums.count:
            return sums
        why = if_nothing_seen
        if sums.skipped:
            why = f"{sums.skipped} had NaN or infinite gradients: look at the images and the weights"
        elif self.seen:
            why = (
                f"none of {self.seen} was classified correctly: train longer, check the labels, or set "
                "only_correct=False"
            )
        raise NoSamplesError(f"no sample was counted: {why}")

    def _truth(self, labels: Any, samples: int) -> Tensor | None:
        if labels is None and self.only_correct:
            raise InputError("only_correct=True needs labels: pass them, or set only_correct=False")
        return None if labels is None else labels_for(labels, samples)

    def _check(self, broken: Tensor) -> None:
        if self.nan == "raise" and bool(broken.any()):
            sample = int(broken.nonzero()[0])
            raise GradientError(
                f"the gradient of sample {sample} of this batch is NaN or infinite ({int(broken.sum())} of "
                f"{len(broken)} samples): look at the images and weights, or pass nan='skip' to leave them out"
            )
