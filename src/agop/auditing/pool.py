"""Pool: a bounded random choice of images of each class, read once from a tensor or a loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError, PriorError
from agop.model.probe import check_images, check_model, number_of_classes
from agop.model.targets import check_range, labels_for
from agop.statistic.agop import AGOP
from agop.statistic.fitting import images_and_labels
from agop.system.progress import track

# Values of all images together, 2 GiB in float32: fewer images per class are kept of many classes or large images.
_MOST_VALUES = 2**29
# Images of a class that suffice for two halves to propose and to test.
ENOUGH_IMAGES = 20
# Side of the smallest images in which windows and patches fit.
_SMALLEST = 4
_Sample = tuple[Tensor, str]


@dataclass(frozen=True)
class Half:
    """Images (N,C,H,W), labels (N,) and names of the images: one half to propose, the other to test."""

    images: Tensor
    labels: Tensor
    pictures: tuple[str, ...]

    def where(self, chosen: Tensor) -> Half:
        """The images at which `chosen` (N,) is True."""
        pictures = tuple(picture for picture, kept in zip(self.pictures, chosen.tolist(), strict=True) if kept)
        return Half(self.images[chosen], self.labels[chosen], pictures)


@dataclass(frozen=True)
class Pool:
    """Images (N,C,H,W) with labels (N,) of `classes` classes.

    `pictures` are their paths, or their positions in the data.
    """

    images: Tensor
    labels: Tensor
    classes: int
    pictures: tuple[str, ...]

    @property
    def audited(self) -> list[int]:
        """The classes with enough images."""
        return [index for index in range(self.classes) if int((self.labels == index).sum()) >= ENOUGH_IMAGES]

    @property
    def skipped(self) -> dict[int, int]:
        """The number of images of each class that has too few."""
        counts = torch.bincount(self.labels, minlength=self.classes).tolist()
        return {index: count for index, count in enumerate(counts) if count < ENOUGH_IMAGES}

    def halves(self) -> tuple[Half, Half]:
        """Two halves of the images, of each class. The images of a class are in random order."""
        odd = torch.zeros(len(self.labels), dtype=torch.bool)
        for index in set(self.labels.tolist()):
            odd[(self.labels == index).nonzero()[1::2, 0]] = True
        whole = Half(self.images, self.labels, self.pictures)
        return whole.where(~odd), whole.where(odd)


def read_pool(
    model: nn.Module,
    data: Tensor | Iterable[Any],
    labels: Any,
    per_class: int,
    seed: int,
    prior: AGOP | None = None,
    *,
    progress: bool,
) -> Pool:
    """At most `per_class` images of each class: a reservoir, so memory doesn't grow with the number of images.

    The prior is checked with the first batch.
    """
    check_model(model)
    generator = torch.Generator().manual_seed(seed)
    kept: list[list[_Sample]] = []
    seen: list[int] = []
    for images, classes, pictures in track(_batches(data, labels), "reading images", show=progress):
        if not kept:
            count = number_of_classes(model, images[:1])
            _check_prior(prior, images, count)
            kept, seen = [[] for _ in range(count)], [0] * count
            room = min(per_class, max(2 * ENOUGH_IMAGES, _MOST_VALUES // (count * images[0].numel())))
            shape = images.shape[1:]
        if images.shape[1:] != shape:
            raise InputError(
                f"images have shapes {tuple(shape)} and {tuple(images.shape[1:])}: resize all images to one size"
            )
        check_range(classes, len(kept), "label")
        for image, index, picture in zip(images, classes.tolist(), pictures, strict=True):
            place = int(torch.randint(seen[index] + 1, (), generator=generator))
            seen[index] += 1
            if len(kept[index]) < room:
                kept[index].insert(place, (image.clone(), picture))  # a copy: a row would keep its batch in memory
            elif place < room:
                kept[index][place] = (image.clone(), picture)
    return _pool(kept)


def _check_prior(prior: AGOP | None, images: Tensor, classes: int) -> None:
    """Raise if the prior is for images of another shape, or has diagonals of another number of classes."""
    if prior is None:
        return
    prior.check_shape(images)
    if prior.class_diagonals is not None and len(prior.class_diagonals) != classes:
        raise PriorError(
            f"the prior has {len(prior.class_diagonals)} classes, the model {classes}: compute one for this model with "
            "agop.fit(per_class=True)"
        )


def _pool(kept: list[list[_Sample]]) -> Pool:
    present = [index for index, samples in enumerate(kept) if samples]
    if len(present) < 2:
        raise InputError(
            f"the images have {len(present)} class{'es' * (not present)}: give images of at least two classes, since "
            "parts of one class are pasted into images of others"
        )
    if sum(len(samples) > 1 for samples in kept) < 2:  # each half needs images of another class
        raise InputError("only one class has more than one image: give more images of another class")
    pool = Pool(
        torch.stack([image for samples in kept for image, _ in samples]),
        torch.tensor([index for index, samples in enumerate(kept) for _ in samples]),
        len(kept),
        tuple(picture for samples in kept for _, picture in samples),
    )
    if not pool.audited:
        most = max(len(samples) for samples in kept)
        raise InputError(f"no class has {ENOUGH_IMAGES} images, the largest has {most}: give more images")
    return pool


def _batches(data: Any, labels: Any) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
    """Images in the CPU's memory, labels, and paths or positions, batch by batch."""
    whole = isinstance(data, Tensor)
    if not whole and labels is not None:
        raise InputError("labels are for a tensor of images: a loader yields (images, labels)")
    if not whole and not isinstance(data, Iterable):
        raise InputError(f"images are a {type(data).__name__}: give a tensor (N,C,H,W) or a loader")
    seen = 0
    for batch in [(data, labels)] if whole else data:
        images, classes = images_and_labels(batch)
        check_images(images)
        if classes is None:
            raise InputError("the images have no labels: an audit needs the class of each image, pass labels")
        names = list(batch.get("paths", ())) if isinstance(batch, Mapping) else []
        if names and len(names) != len(images):
            raise InputError(f"a batch has {len(names)} paths and {len(images)} images: give one path per image")
        pictures = [str(name) for name in names or range(seen, seen + len(images))]
        seen += len(images)
        yield _usable(images, pictures), labels_for(classes, len(images)).cpu(), pictures


def _usable(images: Tensor, pictures: Sequence[str]) -> Tensor:
    """The images in the CPU's memory, in float32 or float64. Raise if they are too small or have NaN."""
    if min(images.shape[2:]) < _SMALLEST:
        height, width = images.shape[2:]
        raise InputError(f"images have {height}×{width} pixels: give at least {_SMALLEST}×{_SMALLEST}")
    images = images.detach().cpu()
    finite = images.flatten(1).isfinite().all(dim=1)
    if not finite.all():
        picture = pictures[int(finite.long().argmin())]
        raise InputError(f"image {picture} has NaN or infinite values: repair or remove it")
    return images.to(torch.promote_types(images.dtype, torch.float32))
