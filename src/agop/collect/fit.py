"""Collect an AGOP: the options, one batch at a time, and fit() over a data loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from agop.collect.tune import Sample
from agop.collect.tune import tune as choose_exponents
from agop.errors import FileError, GradientError, InputError, NoSamplesError, warn
from agop.model.layers import Layer, PatchLayer
from agop.model.outputs import Forward, Output, OutputLike, check_range, class_count, labels_for, logit, output_for
from agop.model.prepare import prepare_if_equal
from agop.model.probe import Gradients, check_images, check_model, probing, rows_for, split_batch
from agop.model.state import preserved_random_state
from agop.prior.accumulator import Accumulator, PatchSums, patch_sums
from agop.prior.agop import AGOP, CHECKPOINT
from agop.processes import rank_and_world_size, track
from agop.registry import unknown_name_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

_IMAGE_KEYS = ("pixel_values", "images", "image", "x")
_LABEL_KEYS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True)
class CollectOptions:
    """What `fit`, the training hook and the callbacks of trainers collect. They take each as a keyword argument.

    Attributes:
        only_correct: Count only samples that the model classifies correctly, as in the paper. Needs labels. By default
            True for outputs with classes, and False for the others, which don't have it.
        per_class: Also keep diag(M) of each class, of samples with this predicted class.
        nan: "raise" if a sample has NaN or infinite gradients, or "skip" such samples and count them.
        patches: Also keep the patch matrix S of a layer.
        layer: Name or module of that layer, by default the first convolution if there is one.
        rank: Number of rows ℓ of a sketch of the whole matrix M; 0 for none.
        output: What gradients are of, as in `explain`: "logit" and the other outputs with classes of the predicted
            class. Without classes, labels are ignored.
        forward: As in `explain`.
    """

    only_correct: bool | None = None
    per_class: bool = False
    nan: str = "raise"
    patches: bool = True
    layer: Layer = None
    rank: int = 0
    output: OutputLike = logit
    forward: Forward | None = None

    def __post_init__(self) -> None:
        output = self.explained
        if not output.has_classes and (self.only_correct or self.per_class):
            wrong = "only_correct" if self.only_correct else "per_class"
            raise InputError(f"{wrong}=True is for outputs with classes, not for {output.name}: omit it")
        if output.each:
            raise InputError(
                f"{output.label} has one {next(iter(output.each))} per image, but data come in batches: "
                "give one for all images, or omit it"
            )
        if self.nan not in ("raise", "skip"):
            raise InputError(f"nan is {self.nan!r}: give 'raise' or 'skip'")
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 0:
            raise InputError(f"rank is {self.rank!r}: give a positive integer, or 0 for no sketch")

    @property
    def explained(self) -> Output:
        """The output, with `forward`."""
        return output_for(self.output, self.forward)

    @property
    def needs_labels(self) -> bool:
        """True if only correctly classified samples count."""
        return self.explained.has_classes if self.only_correct is None else self.only_correct

    @classmethod
    def of(cls, function: Callable[..., Any], **options: Any) -> CollectOptions:
        """The options among the keyword arguments of a function. Raises UnknownNameError for another one."""
        names = [item.name for item in fields(cls)]
        for name in options:
            if name not in names:
                own = [parameter for parameter in signature(function).parameters if parameter != "options"]
                raise unknown_name_error("option", name, list(dict.fromkeys([*own, *names])))
        return cls(**options)

    def recorded(self) -> dict[str, Any]:
        """The options that the provenance records."""
        plain = {name: getattr(self, name) for name in ("per_class", "nan", "rank")}
        return {"only_correct": self.needs_labels, **plain, "output": self.explained.name}


class CollectKeywords(TypedDict, total=False):
    """Fields of `CollectOptions` that `fit` and the hook take without naming them, for type checkers."""

    nan: str
    patches: bool
    layer: Layer
    rank: int
    output: OutputLike
    forward: Forward | None


def fit(
    model: nn.Module,
    loader: Iterable[Any],
    only_correct: bool | None = None,
    per_class: bool = False,
    progress: bool = True,
    *,
    batch_size: int | None = None,
    snapshot: Callable[[AGOP], object] | None = None,
    snapshot_every: float = 60,
    tune: bool = True,
    **options: Unpack[CollectKeywords],
) -> AGOP:
    """The AGOP of a trained model over the images of a loader.

    Under torch.distributed each rank passes its share of the data and gets the AGOP of all.

    Args:
        model: The model. It is left as it was.
        loader: Batches: tuples (images, labels) or dicts, or images (N,C,H,W) alone with only_correct=False.
        only_correct: Count only samples that the model classifies correctly; the default for outputs with classes.
        per_class: Also keep diag(M) of each class.
        progress: Show a progress bar.
        batch_size: Most images per forward pass, whatever the loader's batches; the default suits the image size.
        snapshot: Called with this rank's AGOP so far every `snapshot_every` seconds, at the end of the pass, and if an
            error ends the pass.
        snapshot_every: Seconds between snapshots.
        tune: Choose the exponent of `agop`'s factor *where* on up to 64 of the images, without masks. Not with several
            ranks.
        options: The other options of `agop.collect.fit.CollectOptions`: nan, patches, layer, rank, output, forward.

    Returns:
        The AGOP, on the CPU.

    Raises:
        InputError: Invalid images, labels or options.
        GradientError: A gradient is NaN or infinite, with nan="raise".
        NoSamplesError: No sample was counted.

    Example:
        >>> prior = agop.fit(model, loader, per_class=True)
        >>> prior.save("prior.safetensors")
    """
    check_model(model)
    if isinstance(loader, (Tensor, Dataset)):
        raise InputError(
            f"loader is a {type(loader).__name__}: wrap it, torch.utils.data.DataLoader(data, batch_size=64)"
        )
    chosen = CollectOptions.of(fit, only_correct=only_correct, per_class=per_class, **options)
    collector, sample = Collector(model, chosen), Sample()
    with _snapshots(model, collector, snapshot, snapshot_every) as take_if_due:
        with preserved_random_state(list(model.parameters())):  # the loader draws random numbers
            prepared: nn.Module | None = None
            for batch in track(loader, "agop", show=progress):
                images, labels = images_and_labels(batch)
                check_images(images, volumes=True)
                rows = rows_for(images, batch_size, model)
                if prepared is None:
                    prepared = prepare_if_equal(model, images[:1], rows, chosen.explained)
                collector.add(prepared, images, labels, rows)
                sample.add(images)
                take_if_due()
        take_if_due(at_end=True)  # before the ranks join, which may fail
        sums = collector.total("the loader is empty: check the data set and the batch size")
    prior = AGOP.from_sums(sums, model, CHECKPOINT, chosen.recorded())
    if not tune or rank_and_world_size()[1] > 1:
        return prior
    return choose_exponents(model, prior, torch.stack(sample.images), chosen.explained, progress=progress)


@dataclass(frozen=True)
class _Part:
    """Of the samples of one pass that count: gradients, targets, patch sums and images.

    `broken` samples would count if their gradient were finite. `broken` and `correct` (N,) are of all samples.
    """

    values: Tensor
    targets: Tensor
    classes: int
    patches: PatchSums | None
    images: Tensor | None
    broken: Tensor
    correct: Tensor | None


class Collector:
    """Adds batches to an accumulator by the paper's rule (Algorithm 1): gradients of the predicted class's logit."""

    def __init__(self, model: nn.Module, options: CollectOptions) -> None:
        self.options = options
        self.patch_layer = PatchLayer(model, options.layer) if options.patches else None
        self.sums = Accumulator(options.per_class, options.rank)
        self.seen = 0
        # False while a batch is being added: if the process is stopped then, sums and counts don't match.
        self.consistent = True

    def add(self, model: nn.Module, images: Tensor, labels: Any, rows: int | None = None) -> None:
        """Compute gradients and add them, at most `rows` images per pass. If it raises, the sums don't change."""
        check_images(images, volumes=True)
        truth = self._truth(labels, len(images))
        with probing(model, self.options.explained) as probe:
            parts = [
                self._part(probe.gradients(part, layer=self.patch_layer), own, part)
                for part, own in split_batch(rows or len(images), images, truth)
            ]
        self._count(parts, truth)

    def count(self, gradients: Gradients, labels: Any, images: Tensor | None = None) -> None:
        """Add the gradients of a batch for the predicted classes, and its images if they are known."""
        if images is not None and images.shape != gradients.values.shape:
            shapes = f"images have shape {tuple(images.shape)}, gradients {tuple(gradients.values.shape)}"
            raise InputError(f"{shapes}: pass the images of these gradients")
        truth = self._truth(labels, len(gradients.values))
        self._count([self._part(gradients, truth, images)], truth)

    def _truth(self, labels: Any, samples: int) -> Tensor | None:
        if labels is None and self.options.needs_labels:
            raise InputError("only_correct=True needs labels: pass them, or set only_correct=False")
        ignored = labels is None or not self.options.explained.has_classes
        return None if ignored else labels_for(labels, samples)

    def _part(self, gradients: Gradients, truth: Tensor | None, images: Tensor | None) -> _Part:
        """Select the samples that count. Of a layer's gradients, which take much memory, only the sums are kept."""
        values, targets = gradients.values, gradients.targets
        classes = class_count(gradients.logits) if self.options.explained.has_classes else 0
        self.sums.check(classes, values.shape[1:])
        finite = values.flatten(1).isfinite().all(dim=1)
        correct = None if truth is None else targets == truth.to(targets.device)
        counted = correct if correct is not None and self.options.needs_labels else torch.ones_like(finite)
        keep = counted & finite
        rows = None if bool(keep.all()) else keep.nonzero()[:, 0]
        targets, patches = _kept(targets, rows), None
        if gradients.deltas is not None and self.patch_layer is not None and self.patch_layer.name is not None:
            patches = patch_sums(_kept(gradients.deltas, rows), self.sums.groups(targets))
        images = None if images is None else _kept(images, rows)
        return _Part(_kept(values, rows), targets, classes, patches, images, counted & ~finite, correct)

    def _count(self, parts: list[_Part], truth: Tensor | None) -> None:
        if truth is not None:
            check_range(truth, parts[0].classes, "label")
        broken = torch.cat([part.broken for part in parts])
        if self.options.nan == "raise" and bool(broken.any()):
            raise GradientError(
                f"the gradient of {self.options.explained.name} for sample {int(broken.nonzero()[0])} of this batch is "
                f"NaN or infinite "
                f"({int(broken.sum())} of {len(broken)} samples): check the images and weights, or pass nan='skip' to "
                "skip these samples"
            )
        self.consistent = False
        for part in parts:
            if part.patches is not None and self.patch_layer is not None:
                self.sums.layer = self.patch_layer.name
            self.sums.update(part.values, part.targets, part.classes, part.patches, part.images)
        if truth is not None:
            correct = sum(int(part.correct.sum()) for part in parts if part.correct is not None)
            self.sums.count_labels(truth, correct, parts[0].classes)
        self.seen += len(broken)
        self.sums.skipped += int(broken.sum())
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
            fix = "train longer, check the labels, or set only_correct=False"
            reason = f"none of {self.seen} was classified correctly: {fix}"
        raise NoSamplesError(f"no sample was counted: {reason}")


def _kept(values: Tensor, rows: Tensor | None) -> Tensor:
    """The values (N,…) of these rows; of all without a copy if None."""
    return values if rows is None else values.index_select(0, rows.to(values.device))


@contextmanager
def _snapshots(
    model: nn.Module, collector: Collector, take: Callable[[AGOP], object] | None, every: float
) -> Iterator[Callable[..., None]]:
    """A function that takes a snapshot if one is due. A snapshot is also taken if an error ends the block."""
    last = time.monotonic()

    def take_if_due(at_end: bool = False) -> None:
        nonlocal last
        if not at_end and time.monotonic() - last < every:
            return
        if take is not None and collector.consistent and collector.sums.count:
            try:
                take(AGOP.from_sums(collector.sums, model, CHECKPOINT, collector.options.recorded()))
            except FileError as error:
                warn(f"no snapshot was written: {error}")
        last = time.monotonic()

    try:
        yield take_if_due
    except BaseException:  # also KeyboardInterrupt, and signals when another rank ended
        take_if_due(at_end=True)
        raise


def images_and_labels(batch: Any) -> tuple[Any, Any]:
    """Images and labels (or None) of a batch: a tuple, a dict or images alone."""
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        images = next((batch[key] for key in _IMAGE_KEYS if key in batch), None)
        labels = next((batch[key] for key in _LABEL_KEYS if key in batch), None)
        if images is None:
            raise InputError(f"a batch has keys {list(batch)}, none of {', '.join(_IMAGE_KEYS)}: rename one")
        return images, labels
    if isinstance(batch, (tuple, list)) and batch:
        return batch[0], batch[1] if len(batch) > 1 else None
    raise InputError(f"a batch is a {type(batch).__name__}: the loader should yield (images, labels)")
