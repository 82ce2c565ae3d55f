"""Accumulator: running sums that become an AGOP."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from agop.errors import InputError, NoSamplesError
from agop.statistic.moments import mean_and_deviation, moment_sums
from agop.statistic.patch_matrix import PatchSums, add_patch_sums
from agop.statistic.reservoir import Reservoir
from agop.statistic.sketch import Sketch
from agop.system.distributed import rank_and_world_size

# Values squared at once: bounds the float64 copy for any batch size.
_CHUNK_VALUES = 2**18


class Accumulator:
    """Sums of squared gradients, float64 (G,C,H,W), and counts (G,), for G groups of samples.

    With per_class each class is a group, else all samples are one group. An empty accumulator has no shape yet and is
    the identity of `merge`. `skipped` samples had no finite gradient; of the `labelled` ones, counted or not, the model
    classified `correct` correctly. `patches` (G,D,D) are the sums of the patch matrix of `layer`, and `moments`
    (2,C,H,W) those of the images and their squares, None unless all samples have them. With a rank there is a `sketch`
    of the gradients, with a number of references a `reservoir` of images.
    """

    def __init__(self, per_class: bool = False, rank: int = 0, references: int = 0) -> None:
        self.per_class, self.rank, self.references = per_class, rank, references
        self.reset()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Accumulator:
        """The accumulator that returned this `state_dict`."""
        sums = cls(state["per_class"], state.get("rank", 0), state.get("references", 0))
        sums.load_state_dict(state)
        return sums

    def reset(self) -> None:
        """Remove all samples."""
        self.sums: Tensor | None = None
        self.counts: Tensor | None = None
        self.patches: Tensor | None = None
        self.layer: str | None = None
        self.moments: Tensor | None = None
        self.sketch = Sketch(self.rank) if self.rank else None
        self.reservoir = Reservoir(self.references) if self.references else None
        self.classes = 0
        self.skipped = self.labelled = self.correct = 0

    @property
    def count(self) -> int:
        """Number of samples."""
        return 0 if self.counts is None else int(self.counts.sum())

    def check(self, classes: int, shape: torch.Size) -> None:
        """Raise if gradients of this shape (C,H,W) and number of classes can't be added to the earlier ones."""
        if self.sums is not None and (self.sums.shape[1:] != shape or self.classes != classes):
            raise InputError(
                f"gradients of shape {tuple(shape)} with {classes} classes don't match the previous ones, "
                f"of shape {tuple(self.sums.shape[1:])} with {self.classes} classes"
            )

    def groups(self, classes: Tensor) -> Tensor:
        """The group of each sample, on the CPU, from its class."""
        return classes.cpu() if self.per_class else torch.zeros(len(classes), dtype=torch.long)

    def update(
        self,
        gradients: Tensor,
        classes: Tensor,
        class_count: int,
        patches: PatchSums | None = None,
        images: Tensor | None = None,
    ) -> None:
        """Add gradients (N,C,H,W) of samples with these classes (N,), their sums of the patch matrix and images."""
        shape = gradients.shape[1:]
        sums, counts = self._sums_for(class_count, shape, gradients.device)
        groups = self.groups(classes)
        if len(groups):
            complete = patches is not None and (self.patches is not None or self.count == 0)
            self.patches = add_patch_sums(self.patches, patches, len(counts)) if patches and complete else None
            self._add_moments(None if images is None else moment_sums(images))
        if self.sketch is not None:
            self.sketch.update(gradients)
        if self.reservoir is not None and images is not None:
            self.reservoir.update(images)
        rows = max(1, _CHUNK_VALUES // shape.numel())
        for part, group in zip(torch.split(gradients, rows), torch.split(groups, rows), strict=True):
            # float64: a float32 sum of many small squares loses its tail.
            squares = part.to(sums.device, torch.float64).square_()
            if self.per_class:
                sums.index_add_(0, group.to(sums.device), squares)
            else:
                sums[0].add_(squares.sum(dim=0))
        counts += torch.bincount(groups, minlength=len(counts))

    def merge(self, other: Accumulator) -> Accumulator:
        """A new accumulator with the samples of both."""
        if self.per_class != other.per_class:
            raise InputError("can't merge an accumulator with per_class and one without: use the same option")
        merged = Accumulator(self.per_class, self.rank, self.references)
        merged.layer = self.layer or other.layer
        merged.skipped = self.skipped + other.skipped
        merged.labelled, merged.correct = self.labelled + other.labelled, self.correct + other.correct
        for part in (self, other):
            if part.sums is not None and part.counts is not None:
                sums, counts = merged._sums_for(part.classes, part.sums.shape[1:], part.sums.device)
                if part.count:
                    complete = merged.patches is not None or merged.count == 0
                    merged.patches = (
                        _plus(merged.patches, part.patches) if complete and part.patches is not None else None
                    )
                    merged._add_moments(part.moments)
                sums += part.sums
                counts += part.counts
        if self.sketch is not None and other.sketch is not None:
            merged.sketch = self.sketch.merge(other.sketch)
        if self.reservoir is not None and other.reservoir is not None:
            merged.reservoir = self.reservoir.merge(other.reservoir)
        return merged

    def _add_moments(self, moments: Tensor | None) -> None:
        """Add the moments of more samples, before these are counted. None unless all samples have them."""
        complete = self.moments is not None or self.count == 0
        self.moments = _plus(self.moments, moments) if complete and moments is not None else None

    def sync(self) -> Accumulator:
        """A new accumulator with the samples of all ranks under torch.distributed, else a copy.

        A collective: every rank must call it, also one without samples.
        """
        total = self.merge(Accumulator(self.per_class, self.rank, self.references))
        _, world_size = rank_and_world_size()
        if world_size > 1:
            total._reduce(world_size)
        return total

    def _reduce(self, world_size: int) -> None:
        """Replace the sums by those of all ranks. A rank without samples has no shape yet."""
        device = _collective_device()
        shapes: list[Any] = [None] * world_size
        dist.all_gather_object(shapes, None if self.sums is None else (self.classes, tuple(self.sums.shape[1:])))
        for shape in shapes:
            if shape is not None:
                classes, size = shape
                self._sums_for(classes, torch.Size(size), device)
        numbers = torch.tensor([self.skipped, self.labelled, self.correct], device=device)
        dist.all_reduce(numbers)
        self.skipped, self.labelled, self.correct = numbers.tolist()
        if self.sums is not None and self.counts is not None:
            self._reduce_patches(world_size, device)
            self._reduce_moments(world_size, device)
            if self.sketch is not None:
                self.sketch = self.sketch.gathered(world_size)
            if self.reservoir is not None:
                self.reservoir = self.reservoir.gathered(world_size)
            counts = self.counts.to(device)
            dist.all_reduce(self.sums)
            dist.all_reduce(counts)
            self.counts = counts.cpu()

    def _reduce_patches(self, world_size: int, device: torch.device) -> None:
        """Add the patch sums of all ranks, unless a rank has samples without them."""
        sizes: list[Any] = [None] * world_size
        own = None if self.patches is None else tuple(self.patches.shape)
        dist.all_gather_object(sizes, (self.layer, own) if self.count else None)
        known = {size for size in sizes if size is not None}
        self.layer, size = known.pop() if len(known) == 1 else (None, None)
        if size is not None:
            empty = torch.zeros(size, dtype=torch.float64)
            self.patches = (empty if self.patches is None else self.patches).to(device)
            dist.all_reduce(self.patches)
        else:
            self.patches = None

    def _reduce_moments(self, world_size: int, device: torch.device) -> None:
        """Add the moments of all ranks, unless a rank has samples without them."""
        complete: list[Any] = [None] * world_size
        dist.all_gather_object(complete, self.moments is not None or self.count == 0)
        if all(complete) and self.sums is not None:
            empty = torch.zeros(2, *self.sums.shape[1:], dtype=torch.float64)
            self.moments = (empty if self.moments is None else self.moments).to(device)
            dist.all_reduce(self.moments)
        else:
            self.moments = None

    def diagonal(self) -> Tensor:
        """diag(M) (C,H,W): the mean squared gradient over all samples."""
        if self.count == 0:
            raise NoSamplesError("no samples were counted, so the mean is undefined")
        return self.total() / self.count

    def total(self) -> Tensor:
        """Sum of squared gradients (C,H,W), a new tensor. A zero before the first update."""
        return torch.zeros((), dtype=torch.float64) if self.sums is None else self.sums.sum(dim=0)

    def class_diagonals(self) -> Tensor | None:
        """diag(M) per class (K,C,H,W), NaN for a class without samples. None without per_class."""
        if not self.per_class or self.sums is None or self.counts is None:
            return None
        return self.sums / self.counts.to(self.sums.device)[:, None, None, None]

    def patch_matrix(self) -> Tensor | None:
        """S (D,D): the mean over all samples of Σ_p δ_p δ_pᵀ. None unless it was collected for all of them."""
        return None if self.patches is None else self.patches.sum(dim=0) / self.count

    def class_patch_matrices(self) -> Tensor | None:
        """S per class (K,D,D), NaN for a class without samples. None without per_class, and if they are large."""
        if not self.per_class or self.patches is None or self.counts is None or len(self.patches) != len(self.counts):
            return None
        return self.patches / self.counts.to(self.patches.device)[:, None, None]

    def image_moments(self) -> Tensor | None:
        """Mean and standard deviation of the images (2,C,H,W), float32. None unless all of them are known."""
        return None if self.moments is None else mean_and_deviation(self.moments, self.count)

    def reference_images(self) -> Tensor | None:
        """Images (M,C,H,W) of the reservoir, float32. None without one."""
        return None if self.reservoir is None else self.reservoir.images()

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and numbers only, so that torch.load(weights_only=True) can read it."""
        return {
            "per_class": self.per_class,
            "classes": self.classes,
            "skipped": self.skipped,
            "labelled": self.labelled,
            "correct": self.correct,
            "sums": None if self.sums is None else self.sums.detach().cpu().clone(),
            "counts": None if self.counts is None else self.counts.clone(),
            "patches": None if self.patches is None else self.patches.detach().cpu().clone(),
            "layer": self.layer,
            "rank": self.rank,
            "sketch": None if self.sketch is None else self.sketch.state_dict(),
            "moments": None if self.moments is None else self.moments.detach().cpu().clone(),
            "references": self.references,
            "images": self.reference_images(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""
        if state["per_class"] != self.per_class:
            raise InputError(
                f"the saved state has per_class={state['per_class']}, this accumulator per_class={self.per_class}"
            )
        self.classes, self.skipped = state["classes"], state["skipped"]
        self.labelled, self.correct = state["labelled"], state["correct"]
        self.sums = None if state["sums"] is None else state["sums"].clone()
        self.counts = None if state["counts"] is None else state["counts"].cpu().clone()
        # States of earlier versions have no patch matrix, no sketch and no images.
        patches, sketch = state.get("patches"), state.get("sketch")
        self.patches, self.layer = None if patches is None else patches.clone(), state.get("layer")
        if self.sketch is not None and sketch is not None:
            self.sketch.load_state_dict(sketch)
        moments = state.get("moments")
        self.moments = None if moments is None else moments.clone()
        if self.reservoir is not None:
            self.reservoir = Reservoir.of(self.references, [state.get("images")])

    def _sums_for(self, classes: int, shape: torch.Size, device: torch.device) -> tuple[Tensor, Tensor]:
        """The sums and counts to add to, on the device. Created on first use; raises if the shape differs."""
        # Apple's GPUs have no float64: sums stay on the CPU.
        sums_device = torch.device("cpu") if device.type == "mps" else device
        if self.sums is None or self.counts is None:
            groups = classes if self.per_class else 1
            self.sums = torch.zeros(groups, *shape, dtype=torch.float64, device=sums_device)
            self.counts = torch.zeros(groups, dtype=torch.long)
            self.classes = classes
        self.check(classes, shape)
        self.sums = self.sums.to(sums_device)
        return self.sums, self.counts


def _plus(sums: Tensor | None, more: Tensor) -> Tensor:
    """A new tensor with the sum of both; None is zero."""
    return more.clone() if sums is None else sums + more.to(sums.device)


def _collective_device() -> torch.device:
    """Device of collectives in the default process group: the GPU for NCCL, else the CPU."""
    if "nccl" in str(dist.get_backend()):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
