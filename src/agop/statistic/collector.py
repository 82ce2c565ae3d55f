"""Collector: adds a batch to the sums, for the training hook and fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import GradientError, InputError, NoSamplesError
from agop.model.layers import Layer
from agop.model.patch_layer import PatchLayer
from agop.model.probe import Gradients, check_images, probing
from agop.model.targets import check_output, check_range, class_count, labels_for
from agop.statistic.accumulator import Accumulator
from agop.statistic.patch_matrix import PatchSums, patch_sums
from agop.statistic.reservoir import check_size
from agop.statistic.sketch import check_rank


@dataclass(frozen=True)
class _Part:
    """Gradients, targets and patch sums of the samples of one pass that count, the `rows` of its images (None for all).

    `truth` and `correct` are of all its samples; `broken` ones would count if their gradient were finite.
    """

    values: Tensor
    targets: Tensor
    patches: PatchSums | None
    rows: Tensor | None
    images: Tensor | None
    classes: int
    seen: int
    truth: Tensor | None
    correct: Tensor | None
    broken: Tensor


class Collector:
    """Adds batches to an accumulator by the paper's rule: gradients of the predicted class's logit.

    With only_correct, samples with a wrong prediction are skipped. With `patches`, the patch matrix is collected at a
    layer, by default the model's first convolution. `rank` is that of the sketch, 0 for none. `output` is what
    gradients are of. `references` is the number of images to keep.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        only_correct: bool,
        per_class: bool,
        nan: str,
        patches: bool,
        layer: Layer,
        rank: int,
        output: str,
        references: int = 0,
    ) -> None:
        if nan not in ("raise", "skip"):
            raise InputError(f"nan is {nan!r}: give 'raise' or 'skip'")
        if rank != 0:
            check_rank(rank)
        if references != 0:
            check_size(references)
        check_output(output)
        self.only_correct, self.nan, self.output = only_correct, nan, output
        self.patch_layer = PatchLayer(model, layer) if patches else None
        self.sums = Accumulator(per_class, rank, references)
        self.seen = 0
        # False while a batch is being added: if the process is stopped then, sums and counts don't match.
        self.consistent = True

    @property
    def options(self) -> dict[str, Any]:
        """The options, for the provenance."""
        return {
            "only_correct": self.only_correct, "per_class": self.sums.per_class, "nan": self.nan,
            "rank": self.sums.rank, "output": self.output, "references": self.sums.references,
        }  # fmt: skip

    def add(self, model: nn.Module, images: Tensor, labels: Any, rows: int | None = None) -> None:
        """Compute gradients and add them, at most `rows` images per pass. If it raises, the sums don't change."""
        check_images(images)
        truth = self._truth(labels, len(images))
        size = rows or len(images)
        images_by_pass = torch.split(images, size)
        truths = [None] * len(images_by_pass) if truth is None else torch.split(truth, size)
        with probing(model, self.output) as probe:
            parts = [
                self._part(probe.gradients(part, layer=self.patch_layer), own, part)
                for part, own in zip(images_by_pass, truths, strict=True)
            ]
        self._count(parts)

    def count(self, gradients: Gradients, labels: Any, images: Tensor | None = None) -> None:
        """Add the gradients of a batch for the predicted classes, and its images if they are known."""
        if images is not None and images.shape != gradients.values.shape:
            shapes = f"images have shape {tuple(images.shape)}, gradients {tuple(gradients.values.shape)}"
            raise InputError(f"{shapes}: pass the images of these gradients")
        self._count([self._part(gradients, self._truth(labels, len(gradients.values)), images)])

    def _part(self, gradients: Gradients, truth: Tensor | None, images: Tensor | None) -> _Part:
        """Select the samples that count. Of a layer's gradients, which take much memory, only the sums are kept."""
        classes, values, targets = class_count(gradients.logits), gradients.values, gradients.targets
        self.sums.check(classes, values.shape[1:])
        finite = values.flatten(1).isfinite().all(dim=1)
        correct = None if truth is None else targets == truth.to(targets.device)
        counted = correct if correct is not None and self.only_correct else torch.ones_like(finite)
        keep = counted & finite
        rows = None if bool(keep.all()) else keep.nonzero()[:, 0]
        targets, patches = _kept(targets, rows), None
        if gradients.deltas is not None and self.patch_layer is not None and self.patch_layer.name is not None:
            patches = patch_sums(_kept(gradients.deltas, rows), self.sums.groups(targets))
        values, broken = _kept(values, rows), counted & ~finite
        return _Part(values, targets, patches, rows, images, classes, len(finite), truth, correct, broken)

    def _count(self, parts: list[_Part]) -> None:
        truths = [part.truth for part in parts if part.truth is not None]
        if truths:
            check_range(torch.cat(truths), parts[0].classes, "label")
        broken = torch.cat([part.broken for part in parts])
        self._check(broken)
        self.consistent = False
        for part in parts:
            self._add(part)
        self.sums.skipped += int(broken.sum())
        self.consistent = True

    def _add(self, part: _Part) -> None:
        if part.patches is not None and self.patch_layer is not None:
            self.sums.layer = self.patch_layer.name
        images = None if part.images is None else _kept(part.images, part.rows)
        self.sums.update(part.values, part.targets, part.classes, part.patches, images)
        if part.correct is not None:
            self.sums.labelled += part.seen
            self.sums.correct += int(part.correct.sum())
        self.seen += part.seen

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


def _kept(values: Tensor, rows: Tensor | None) -> Tensor:
    """The values (N,…) of these rows; of all without a copy if None."""
    return values if rows is None else values.index_select(0, rows.to(values.device))
