"""The data of an audit: a sample of images in two halves, the class probabilities of a model, and effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from agop.auditing.interventions import Intervention
from agop.auditing.thresholds import IMAGES_OF_A_CLASS, TEST_PAIRS
from agop.collect.fit import images_and_labels
from agop.errors import InputError, ModelError, PriorError
from agop.explanation import explain
from agop.model.outputs import check_range, labels_for, probabilities
from agop.model.prepare import prepare_if_equal
from agop.model.probe import Probe, check_images, check_model, number_of_classes, probing, rows_for
from agop.model.state import unwrapped
from agop.prior.agop import AGOP
from agop.processes import track

# Side of the smallest images in which windows and patches fit.
_SMALLEST_SIDE = 4
# Values of all images together, 2 GiB in float32: fewer images per class are kept of many classes or large images.
_MOST_VALUES = 2**29
# By default, a search has about this many floating-point operations, five minutes on two cores. Passes of the model for
# a class, and for each image of it: measured with a small ResNet on CIFAR-10.
_OPERATIONS, _PASSES, _PASSES_PER_IMAGE = 4e13, 9000, 20


@dataclass(frozen=True)
class Split:
    """Images (N,C,H,W), labels (N,) and names of the images: one half to propose, the other to test."""

    images: Tensor
    labels: Tensor
    pictures: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.images.shape[2], self.images.shape[3]

    def where(self, chosen: Tensor) -> Split:
        """The images at which `chosen` (N,) is True."""
        pictures = tuple(picture for picture, kept in zip(self.pictures, chosen.tolist(), strict=True) if kept)
        return Split(self.images[chosen], self.labels[chosen], pictures)


@dataclass(frozen=True)
class ImageSample(Split):
    """Images of `classes` classes. `pictures` are their paths, or their positions in the data.

    `seen` is the number of images of each class in the data.
    """

    classes: int
    seen: tuple[int, ...]

    @property
    def audited(self) -> list[int]:
        """The classes with enough images."""
        return [index for index in range(self.classes) if index not in self.skipped]

    @property
    def skipped(self) -> dict[int, int]:
        """The number of images of each class that has too few."""
        counts = torch.bincount(self.labels, minlength=self.classes).tolist()
        return {index: count for index, count in enumerate(counts) if count < IMAGES_OF_A_CLASS}

    def halves(self) -> tuple[Split, Split]:
        """Two halves of the images, of each class. The images of a class are in random order."""
        odd = torch.zeros(len(self.labels), dtype=torch.bool)
        for index in set(self.labels.tolist()):
            odd[(self.labels == index).nonzero()[1::2, 0]] = True
        return self.where(~odd), self.where(odd)


def read_sample(
    model: nn.Module,
    data: Tensor | Iterable[Any],
    labels: Any,
    per_class: int | None,
    seed: int,
    prior: AGOP | None = None,
    *,
    progress: bool,
) -> ImageSample:
    """At most `per_class` images of each class: a reservoir, so memory doesn't grow with the number of images.

    Without `per_class`, it is 200, or more of a fast model, up to what a test uses. The prior is checked with the first
    batch.
    """
    check_model(model)
    generator = torch.Generator().manual_seed(seed)
    kept: list[list[tuple[Tensor, str]]] = []
    seen: list[int] = []
    for images, classes, pictures in track(image_batches(data, labels), "reading images", show=progress):
        if not kept:
            with FlopCounterMode(display=False) as counter:
                count = number_of_classes(model, images[:1])
            if prior is not None:
                prior.check_shape(images)
                if prior.class_diagonals is not None and len(prior.class_diagonals) != count:
                    raise PriorError(
                        f"the prior has {len(prior.class_diagonals)} classes, the model {count}: compute one for this "
                        "model with agop.fit(per_class=True)"
                    )
            kept, seen = [[] for _ in range(count)], [0] * count
            passes = _OPERATIONS / (count * max(1, counter.get_total_flops()))
            affordable = int(min(max(200, (passes - _PASSES) / _PASSES_PER_IMAGE), 2 * TEST_PAIRS))
            most = max(2 * IMAGES_OF_A_CLASS, _MOST_VALUES // (count * images[0].numel()))
            room = min(per_class or affordable, most)
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
    return _sample(kept, seen)


def _sample(kept: list[list[tuple[Tensor, str]]], seen: list[int]) -> ImageSample:
    present = [index for index, samples in enumerate(kept) if samples]
    if len(present) < 2:
        raise InputError(
            f"the images have {len(present)} class{'es' * (not present)}: give images of at least two classes, since "
            "parts of one class are pasted into images of others"
        )
    if sum(len(samples) > 1 for samples in kept) < 2:  # each half needs images of another class
        raise InputError("only one class has more than one image: give more images of another class")
    sample = ImageSample(
        torch.stack([image for samples in kept for image, _ in samples]),
        torch.tensor([index for index, samples in enumerate(kept) for _ in samples]),
        tuple(picture for samples in kept for _, picture in samples),
        len(kept),
        tuple(seen),
    )
    if not sample.audited:
        most = max(len(samples) for samples in kept)
        enough = IMAGES_OF_A_CLASS
        raise InputError(f"no class has {enough} images, the largest has {most}: give more images")
    return sample


def image_batches(data: Any, labels: Any, *, labelled: bool = True) -> Iterator[tuple[Tensor, Any, list[str]]]:
    """Images in the CPU's memory, in float32 or float64, labels, and paths or positions, batch by batch.

    Labels are None where there are none, which raises if they must be `labelled`.
    """
    whole = isinstance(data, Tensor)
    if not whole and labels is not None:
        raise InputError("labels are for a tensor of images: a loader yields (images, labels)")
    if not whole and not isinstance(data, Iterable):
        raise InputError(f"images are a {type(data).__name__}: give a tensor (N,C,H,W) or a loader")
    seen = 0
    for batch in [(data, labels)] if whole else data:
        images, classes = images_and_labels(batch)
        check_images(images)
        if classes is None and labelled:
            raise InputError("the images have no labels: an audit needs the class of each image, pass labels")
        names = list(batch.get("paths", ())) if isinstance(batch, Mapping) else []
        if names and len(names) != len(images):
            raise InputError(f"a batch has {len(names)} paths and {len(images)} images: give one path per image")
        pictures = [str(name) for name in names or range(seen, seen + len(images))]
        seen += len(images)
        height, width = images.shape[2:]
        if min(height, width) < (least := _SMALLEST_SIDE):
            raise InputError(f"images have {height}×{width} pixels: give at least {least}×{least}")
        images = images.detach().cpu()
        finite = images.flatten(1).isfinite().all(dim=1)
        if not finite.all():
            picture = pictures[int(finite.long().argmin())]
            raise InputError(f"image {picture} has NaN or infinite values: repair or remove it")
        images = images.to(torch.promote_types(images.dtype, torch.float32))
        yield images, None if classes is None else labels_for(classes, len(images)).cpu(), pictures


# Probabilities nearer to 0 or 1 count as this one in log-odds, which are then at most 21.
_TINY = 1e-9


@dataclass(frozen=True)
class Predictions:
    """A split of the images with the model's probabilities (N,K) for them. At most `rows` images are asked at once."""

    probe: Probe
    rows: int
    split: Split
    before: Tensor

    @classmethod
    def of(cls, probe: Probe, rows: int, split: Split) -> Predictions:
        """The split with its probabilities. Raise if the model's outputs are NaN."""
        before = _probabilities(probe, rows, split.images)
        if wrong := before.isnan().any(dim=1).nonzero()[:, 0].tolist():
            raise ModelError(
                f"the model's outputs are NaN or infinite for {len(wrong)} of {len(before)} images, such as "
                f"{split.pictures[wrong[0]]}: check its weights and its number format"
            )
        return cls(probe, rows, split, before)

    @property
    def accuracy(self) -> float:
        """Share of the images that are classified correctly."""
        return float((self.before.argmax(dim=1) == self.split.labels).double().mean())

    def parts(self, count: int | None = None) -> list[slice]:
        """Slices of `count` images, by default of all, that the model is asked about at once."""
        count = len(self.split.labels) if count is None else count
        return [slice(start, start + self.rows) for start in range(0, count, self.rows)]

    def members(self, class_index: int) -> Tensor:
        """Positions of the images of a class."""
        return (self.split.labels == class_index).nonzero()[:, 0]

    def others(self, class_index: int) -> Tensor:
        """Positions of the images of other classes."""
        return (self.split.labels != class_index).nonzero()[:, 0]

    def some_others(self, class_index: int, count: int, generator: torch.Generator) -> Tensor:
        """Positions of random images of other classes, at most `count`, none twice."""
        others = self.others(class_index)
        return draw_evenly(others, min(count, len(others)), generator)

    def pairs(self, class_index: int, donors: Tensor, count: int, generator: torch.Generator) -> Pairs:
        """Random images of other classes, each with one of the donors. Both are used evenly."""
        hosts = self.some_others(class_index, count, generator)
        return Pairs(self, class_index, hosts, draw_evenly(donors, len(hosts), generator))

    def hosts(self, class_index: int, count: int, generator: torch.Generator) -> Tensor:
        """Images to paste into, half of them of the class, half of others.

        What merely hides the object lowers the log-odds of the class in its own images and raises them in others.
        """
        own = draw_evenly(self.members(class_index), (count + 1) // 2, generator)
        return torch.cat([own, draw_evenly(self.others(class_index), count // 2, generator)])

    def crossed(self, class_index: int, donors: Tensor, hosts: Tensor) -> Pairs:
        """Every donor with the same hosts, by donor."""
        return Pairs(self, class_index, hosts.repeat(len(donors)), donors.repeat_interleave(len(hosts)))


def _probabilities(probe: Probe, rows: int, images: Tensor) -> Tensor:
    """Class probabilities (N,K) in float64 on the CPU."""
    return probabilities(torch.cat([probe.logits(part).cpu().double() for part in torch.split(images, rows)]))


@dataclass(frozen=True)
class Effect:
    """Change (N,) of the probability of the class and of its log-odds.

    `turned` (N,) and `lost` (N,) are the images that are now predicted as the class, or no longer.
    """

    probability: Tensor
    log_odds: Tensor
    turned: Tensor
    lost: Tensor

    @property
    def mean(self) -> float:
        """Mean change of the probability."""
        return float(self.probability.mean())


@dataclass(frozen=True)
class Pairs:
    """Positions of hosts (N,) and donors (N,) in a split of the images, for a class."""

    predictions: Predictions
    class_index: int
    hosts: Tensor
    donors: Tensor

    def with_donors(self, donors: Tensor, generator: torch.Generator) -> Pairs:
        """The same hosts with other donors, used evenly."""
        return replace(self, donors=draw_evenly(donors, len(self.hosts), generator))

    def effect(self, intervention: Intervention, keep: Tensor | None = None) -> Effect:
        """What the intervention changes in each pair. Pixels in `keep` (H,W) stay as they were, and aren't taken."""
        probe, rows = self.predictions.probe, self.predictions.rows
        # Changed images of all pairs together may not fit into memory.
        parts = self.predictions.parts(len(self.hosts))
        after = torch.cat([_probabilities(probe, rows, self._changed(intervention, keep, part)) for part in parts])
        before = self.predictions.before[self.donors if intervention.removes else self.hosts]
        was, now = (p.argmax(dim=1) == self.class_index for p in (before, after))
        old, new = before[:, self.class_index], after[:, self.class_index]
        return Effect(new - old, new.logit(_TINY) - old.logit(_TINY), now & ~was, was & ~now)

    def example(self, intervention: Intervention, keep: Tensor | None, place: int) -> tuple[Tensor, Tensor]:
        """The image of one pair before and after (2,C,H,W), and the probabilities of the classes (2,K)."""
        part, changes = slice(place, place + 1), self.donors if intervention.removes else self.hosts
        before = self.predictions.split.images[changes[part]]
        images = torch.cat([before, self._changed(intervention, keep, part)])
        return images, _probabilities(self.predictions.probe, self.predictions.rows, images)

    def _changed(self, intervention: Intervention, keep: Tensor | None, part: slice) -> Tensor:
        """The changed images of a part of the pairs."""
        hosts, donors = (self.predictions.split.images[positions[part]] for positions in (self.hosts, self.donors))
        if keep is None:
            return intervention.of(part).changed(hosts, donors)
        original = donors if intervention.removes else hosts
        changed = intervention.of(part).changed(hosts, torch.where(keep, hosts, donors))
        return torch.where(keep, original, changed)


def draw_evenly(positions: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the positions in random order, each once before any is repeated."""
    rounds = -(-count // len(positions))
    order = torch.cat([torch.randperm(len(positions), generator=generator) for _ in range(rounds)])
    return positions[order[:count]]


class Stage(IntEnum):
    """The stages of an audit that draw images, each with a generator of its own."""

    SCAN, SCREENING, TEST, CONTRAST, LOOK, WINDOWS, PATCHES, REPAIR, GROUPS = range(9)


def generator_for(seed: int, class_index: int, stage: Stage) -> torch.Generator:
    """The generator of a class and a stage."""
    for number in (class_index, stage):
        seed = seed * 1_000_003 + number + 1
    return torch.Generator().manual_seed(seed % 2**63)


@dataclass(frozen=True, eq=False)
class AuditedModel:
    """A model with its predictions for two halves of the images: the first proposes, the second tests."""

    model: nn.Module
    first: Predictions
    second: Predictions

    @classmethod
    @contextmanager
    def of(cls, model: nn.Module, sample: ImageSample, batch_size: int | None = None) -> Iterator[AuditedModel]:
        """The model in eval mode for a while, with batch norms folded into convolutions if that changes no logits."""
        check_model(model)
        model = unwrapped(model)
        rows = rows_for(sample.images, batch_size, model)
        with probing(prepare_if_equal(model, sample.images[:1], rows)) as probe:
            first, second = (Predictions.of(probe, rows, half) for half in sample.halves())
            if (classes := first.before.shape[1]) != sample.classes:
                raise InputError(
                    f"the models have {sample.classes} and {classes} classes: give models of the same classes"
                )
            yield cls(model, first, second)

    def maps(self, images: Tensor, class_index: int, prior: AGOP) -> Tensor:
        """Maps (N,H,W) of images (N,C,H,W) for a class, by agop-weighted; 0 where they are NaN."""
        return explain(
            self.model, images, "agop-weighted", prior, class_index, batch_size=self.first.rows, nan="skip",
            output=prior.provenance.output,
        ).nan_to_num()  # fmt: skip

    @property
    def accuracy(self) -> float:
        """Share of the images that are classified correctly."""
        right = [half.before.argmax(dim=1) == half.split.labels for half in (self.first, self.second)]
        return float(torch.cat(right).double().mean())


def diagonals_of(prior: AGOP) -> Tensor:
    """diag(M) of each class (K,C,H,W): the priors of an audit have them."""
    return prior.class_diagonals  # type: ignore[return-value]


def class_label(name: str) -> str:
    """The name of a class after the word "class", unless it starts with it."""
    return name if name.startswith("class ") else f"class {name}"
