"""Accumulator: running sums that become an AGOP. Sketch: an approximation of the whole matrix M in little memory.

Shapes: N samples, G groups (the classes, or one group of all samples), images (C,H,W), D channels of a layer.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from agop.errors import InputError, NoSamplesError
from agop.model.probe import at_least_float32, float64_device
from agop.processes import gathered

# Values in float64 at once: they stay in the cache, whatever the batch size.
_CHUNK_VALUES = 2**17
# Matrices per class take up to 128 MiB: 28 classes of a patch embedding with 768 channels, 4,096 of 64 filters.
_MOST_BYTES = 2**27
# The latest sums over ranks: a thread of gloo that is the last to drop one while Python exits aborts the process.
_WORKS: deque[Any] = deque(maxlen=8)
# Σ_p δ_p δ_pᵀ (D,D) in float64 of the samples of each group.
PatchSums = dict[int, Tensor]


class Accumulator:
    """Sums of squared gradients (G,C,H,W) and counts (G,), both float64, for G groups of samples.

    Counts are whole numbers unless `weigh` was called. With per_class each class is a group, else all samples are one
    group. An empty accumulator has no shape yet and is the identity of `merge`. `skipped` samples had no finite
    gradient. `labels` (K,) counts the labels of each class, of samples that count and others, of which the model
    classified `correct` correctly. `patches` (G,D,D) are the sums of the patch matrix of `layer`, `moments` (2,C,H,W)
    the sums of the images and of their squares; both are None unless all samples have them. With a rank there is a
    `sketch` of the gradients.
    """

    def __init__(self, per_class: bool = False, rank: int = 0) -> None:
        self.per_class, self.rank = per_class, rank
        self.sums: Tensor | None = None
        self.counts: Tensor | None = None
        self.patches: Tensor | None = None
        self.layer: str | None = None
        self.moments: Tensor | None = None
        self.sketch = Sketch(rank) if rank else None
        self.classes = 0
        self.labels = torch.zeros(0, dtype=torch.long)
        self.skipped = self.correct = 0

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Accumulator:
        """The accumulator that returned this `state_dict`."""
        sums = cls(state["per_class"], state["rank"])
        sums.load_state_dict(state)
        return sums

    @property
    def count(self) -> int:
        """Number of samples. A weighted sample counts by its weight; their sum is rounded."""
        return 0 if self.counts is None else round(float(self.counts.sum()))

    @property
    def labelled(self) -> int:
        """Number of samples with labels."""
        return int(self.labels.sum())

    def count_labels(self, labels: Tensor, correct: int, classes: int) -> None:
        """Add the labels (N,) of a batch, `correct` of which the model predicts."""
        self.labels = _added_counts(self.labels, torch.bincount(labels.cpu(), minlength=classes))
        self.correct += correct

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
            first = self.count == 0
            complete = patches is not None and (first or self.patches is not None)
            self.patches = _add_patch_sums(self.patches, patches, len(counts)) if patches and complete else None
            self.moments = _total(self.moments, None if images is None else moment_sums(images), first)
        if self.sketch is not None:
            self.sketch.update(gradients)
        rows = max(1, 2 * _CHUNK_VALUES // shape.numel())
        for part, group in zip(torch.split(gradients, rows), torch.split(groups, rows), strict=True):
            # float64: a float32 sum of many small squares loses its tail.
            squares = part.to(sums.device, torch.float64).square_()
            if self.per_class:
                sums.index_add_(0, group.to(sums.device), squares)
            else:
                sums[0].add_(squares.sum(dim=0))
        counts += torch.bincount(groups, minlength=len(counts))

    def merge(self, other: Accumulator) -> Accumulator:
        """A new accumulator with the samples of both, which have the same options."""
        merged = Accumulator(self.per_class, self.rank)
        merged.layer = self.layer or other.layer
        merged.skipped = self.skipped + other.skipped
        merged.labels, merged.correct = _added_counts(self.labels, other.labels), self.correct + other.correct
        for part in (self, other):
            if part.sums is not None and part.counts is not None:
                sums, counts = merged._sums_for(part.classes, part.sums.shape[1:], part.sums.device)
                if part.count:
                    first = merged.count == 0
                    merged.patches = _total(merged.patches, part.patches, first)
                    merged.moments = _total(merged.moments, part.moments, first)
                sums += part.sums
                counts += part.counts
        if self.sketch is not None and other.sketch is not None:
            merged.sketch = self.sketch.merge(other.sketch)
        return merged

    def weigh(self, weight: float) -> None:
        """Let each sample so far count as `weight` samples."""
        for tensor in (self.sums, self.counts, self.patches, self.moments):
            if tensor is not None:
                tensor.mul_(weight)
        if self.sketch is not None:
            self.sketch.scale(weight**0.5)

    def sync(self) -> Accumulator:
        """A new accumulator with the samples of all ranks under torch.distributed, else a copy.

        A collective: every rank must call it, also one without samples.
        """
        total = self.merge(Accumulator(self.per_class, self.rank))
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            total._reduce()
        return total

    def _reduce(self) -> None:
        """Replace the sums by those of all ranks. A rank without samples has no shape yet."""
        on_gpu = "nccl" in str(dist.get_backend())
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        own = {
            "classes": self.classes,
            "shape": None if self.sums is None else self.sums.shape[1:],
            "samples": self.count,
            "patches": (self.layer, None if self.patches is None else self.patches.shape),
            "moments": self.moments is not None,
            "labels": self.labels,
        }
        ranks = gathered(own)
        for rank in ranks:
            if rank["shape"] is not None:
                self._sums_for(rank["classes"], rank["shape"], device)
        self.labels = reduce(_added_counts, [rank["labels"] for rank in ranks])
        numbers = torch.tensor([self.skipped, self.correct])
        self.skipped, self.correct = _reduced(numbers, numbers.shape, device).tolist()
        if self.sums is None or self.counts is None:
            return
        counted = [rank for rank in ranks if rank["samples"]]
        patches = {rank["patches"] for rank in counted}
        self.layer, size = patches.pop() if len(patches) == 1 else (None, None)
        self.patches = None if size is None else _reduced(self.patches, size, device)
        known = all(rank["moments"] for rank in counted)
        self.moments = _reduced(self.moments, torch.Size((2, *self.sums.shape[1:])), device) if known else None
        if self.sketch is not None:
            rows = self.sketch.rows()
            self.sketch = Sketch.of(self.rank, gathered(None if rows is None else rows.cpu()))
        self.sums = _reduced(self.sums, self.sums.shape, device)
        self.counts = _reduced(self.counts, self.counts.shape, device).cpu()

    def total(self) -> Tensor:
        """Sum of squared gradients (C,H,W), a new tensor. A zero before the first update."""
        return torch.zeros((), dtype=torch.float64) if self.sums is None else self.sums.sum(dim=0)

    def diagonal(self) -> Tensor:
        """diag(M) (C,H,W): the mean squared gradient over all samples."""
        if self.count == 0:
            raise NoSamplesError("no samples were counted, so the mean is undefined")
        return self.total() / self._weight

    @property
    def _weight(self) -> float:
        """The counts' sum, not rounded."""
        return 0.0 if self.counts is None else float(self.counts.sum())

    def parts(self) -> dict[str, Tensor | None]:
        """The other parts of an AGOP by name, on the CPU; None for one that wasn't collected for all samples.

        Means of a class without samples are NaN.
        """
        counts = self.counts if self.per_class else None
        by_class = counts is not None and self.patches is not None and len(self.patches) == len(counts)
        sketch = None if self.sketch is None else self.sketch.rows()
        if sketch is not None and self._weight != self.count:  # BᵀB/n, where n is the rounded count
            sketch *= (self.count / self._weight) ** 0.5
        parts = {
            "class_diagonals": _over(self.sums, counts),
            "class_counts": None if counts is None else counts.round().long(),
            "patch_matrix": None if self.patches is None else self.patches.sum(dim=0) / self._weight,
            "class_patch_matrices": _over(self.patches, counts) if by_class else None,
            "sketch": sketch,
            "image_moments": None if self.moments is None else mean_and_deviation(self.moments, self._weight),
        }
        return {name: None if tensor is None else tensor.cpu() for name, tensor in parts.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and numbers only, so that torch.load(weights_only=True) can read it."""
        plain = ("per_class", "classes", "skipped", "correct", "layer", "rank")
        tensors = {name: getattr(self, name) for name in ("sums", "counts", "patches", "moments", "labels")}
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: None if tensor is None else tensor.detach().cpu().clone() for name, tensor in tensors.items()},
            "sketch": None if self.sketch is None else self.sketch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the `state_dict` of an accumulator with the same options."""
        for name in ("classes", "skipped", "correct", "layer"):
            setattr(self, name, state[name])
        for name in ("sums", "counts", "patches", "moments", "labels"):
            setattr(self, name, None if state[name] is None else state[name].clone())
        self.counts = None if self.counts is None else self.counts.to("cpu", torch.float64)
        if self.sketch is not None:
            self.sketch = Sketch.of(self.rank, [state["sketch"]["rows"]])

    def _sums_for(self, classes: int, shape: torch.Size, device: torch.device) -> tuple[Tensor, Tensor]:
        """The sums and counts to add to, on the device. Created on first use; raises if the shape differs."""
        device = float64_device(device)
        if self.sums is None or self.counts is None:
            groups = classes if self.per_class else 1
            self.sums = torch.zeros(groups, *shape, dtype=torch.float64, device=device)
            self.counts = torch.zeros(groups, dtype=torch.float64)
            self.classes = classes
        self.check(classes, shape)
        self.sums = self.sums.to(device)
        return self.sums, self.counts


def patch_sums(deltas: Tensor, groups: Tensor) -> PatchSums:
    """Sums over samples and positions of δ δᵀ, from deltas (N,D,h,w) of samples in these groups (N,)."""
    present = sorted(set(groups.tolist()))
    if len(present) == 1:
        return {present[0]: _gram(deltas)}
    return {group: _gram(deltas[groups == group]) for group in present}


def _gram(deltas: Tensor) -> Tensor:
    channels, device = deltas.shape[1], float64_device(deltas.device)
    total = torch.zeros(channels, channels, dtype=torch.float64, device=device)
    for part in torch.split(deltas, max(1, _CHUNK_VALUES // deltas[0].numel())):
        rows = part.permute(0, 2, 3, 1).reshape(-1, channels).to(device, torch.float64)
        total.addmm_(rows.T, rows)
    return total


def _add_patch_sums(sums: Tensor | None, more: PatchSums, groups: int) -> Tensor | None:
    """The sums (G,D,D) with more samples added in place. Created on first use; one for all groups if they are large."""
    for group, gram in more.items():
        if sums is None:
            kept = groups if groups * gram.nbytes <= _MOST_BYTES else 1
            sums = torch.zeros(kept, *gram.shape, dtype=torch.float64, device=gram.device)
        sums[group if len(sums) == groups else 0].add_(gram.to(sums.device))
    return sums


def moment_sums(images: Tensor) -> Tensor:
    """Sums (2,C,H,W) in float64 of x and x² over images (N,C,H,W)."""
    device = float64_device(images.device)
    sums = torch.zeros(2, *images.shape[1:], dtype=torch.float64, device=device)
    for part in torch.split(images.detach(), max(1, _CHUNK_VALUES // images.shape[1:].numel())):
        exact = part.to(device, torch.float64, copy=True)
        sums[0].add_(exact.sum(dim=0))
        sums[1].add_(exact.square_().sum(dim=0))
    return sums


def mean_and_deviation(sums: Tensor, count: float) -> Tensor | None:
    """Mean and standard deviation (2,C,H,W) in float32, from the sums of x and x². None if they aren't finite."""
    mean, squares = sums / count
    # Rounding may make the variance of a constant pixel negative.
    deviation = (squares - mean.square()).clamp_min(0).sqrt()
    moments = torch.stack([mean, deviation]).float()
    # A model that clamps its input has finite gradients also at an infinite image.
    return moments if bool(moments.isfinite().all()) else None


def _total(sums: Tensor | None, more: Tensor | None, first: bool) -> Tensor | None:
    """A new tensor with the sums of all samples, of which `more` are the first or not. None unless all have some."""
    if more is None or (sums is None and not first):
        return None
    return more.clone() if sums is None else sums + more.to(sums.device)


def _added_counts(counts: Tensor, more: Tensor) -> Tensor:
    """The sum of counts (K,), one of which may be empty."""
    return counts + more if len(counts) and len(more) else torch.cat([counts, more])


def _over(sums: Tensor | None, counts: Tensor | None) -> Tensor | None:
    """Sums (K,…) divided by the counts (K,). None without them."""
    if sums is None or counts is None:
        return None
    return sums / counts.to(sums.device).reshape(-1, *[1] * (sums.ndim - 1))


def _reduced(own: Tensor | None, size: torch.Size, device: torch.device) -> Tensor:
    """The sum over all ranks, where None is zero. A collective call."""
    total = torch.zeros(size, dtype=torch.float64, device=device) if own is None else own.to(device)
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    _WORKS.append(work)
    return total


class Sketch:
    """Frequent Directions (Liberty, 2013): at most 2ℓ rows of gradients (C,H,W), which `rows` shrinks to ℓ.

    Two sketches merge by adding their rows.
    For gradients A (n,C·H·W): AᵀA − BᵀB is positive semi-definite, and its largest eigenvalue is at most
    ‖A − A_k‖² / (ℓ − k) for every k < ℓ, where A_k is the best approximation of rank k, also after merging.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._buffer: Tensor | None = None
        self._used = 0

    @classmethod
    def of(cls, rank: int, parts: list[Tensor | None]) -> Sketch:
        """The sketch of all rows in these parts (N,C,H,W)."""
        sketch = cls(rank)
        for rows in parts:
            if rows is not None:
                sketch.update(rows)
        return sketch

    def update(self, gradients: Tensor) -> None:
        """Add gradients (N,C,H,W)."""
        if not len(gradients):
            return
        if self._buffer is None:
            dtype = at_least_float32(gradients.dtype)
            self._buffer = torch.zeros(2 * self.rank, *gradients.shape[1:], dtype=dtype)
        buffer = self._buffer = self._buffer.to(gradients.device)
        while len(gradients):
            if self._used == len(buffer):
                buffer[: self.rank] = _shrunk(buffer, self.rank)
                self._used = self.rank
            part = gradients[: len(buffer) - self._used]
            buffer[self._used : self._used + len(part)] = part.to(buffer)
            self._used += len(part)
            gradients = gradients[len(part) :]

    def rows(self) -> Tensor | None:
        """B (ℓ,C,H,W), with rows of zeros if there were fewer gradients; None if there were none. A new tensor."""
        if self._buffer is None:
            return None
        if self._used > self.rank:
            return _shrunk(self._buffer[: self._used], self.rank)
        zeros = self._buffer.new_zeros(self.rank - self._used, *self._buffer.shape[1:])
        return torch.cat([self._buffer[: self._used], zeros])

    def merge(self, other: Sketch) -> Sketch:
        """A new sketch of the gradients of both."""
        return Sketch.of(self.rank, [self.rows(), other.rows()])

    def scale(self, factor: float) -> None:
        """Multiply all rows by a factor."""
        if self._buffer is not None:
            self._buffer.mul_(factor)

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and numbers only."""
        buffer = None if self._buffer is None else self._buffer[: self._used].detach().cpu().clone()
        return {"rank": self.rank, "rows": buffer}


def _shrunk(rows: Tensor, rank: int) -> Tensor:
    """ℓ rows for more than ℓ: rotated, each squared norm smaller by the (ℓ+1)-th largest eigenvalue."""
    flat = rows.flatten(1)
    # The small Gram matrix, in chunks of columns, instead of a singular value decomposition of long rows. Its squares
    # need float64, which Apple's GPUs don't have.
    gram = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for part in torch.split(flat, 2**14, dim=1):
        exact = part.to(float64_device(part.device), torch.float64)
        gram += (exact @ exact.T).cpu()
    squares, vectors = torch.linalg.eigh(gram)
    squares, vectors = squares.flip(0), vectors.flip(1)
    kept, smallest = squares[:rank], squares[rank].clamp_min(0)
    factors = torch.where(kept > smallest, (1 - smallest / kept).clamp_min(0).sqrt(), 0.0)
    rotation: Tensor = (vectors[:, :rank] * factors).T.to(flat)
    return (rotation @ flat).reshape(rank, *rows.shape[1:])
