"""fit(): the AGOP of a trained model over a data loader."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from agop.errors import AGOPWarning, FileError, InputError, warn
from agop.model.layers import Layer
from agop.model.preparing import prepare
from agop.model.probe import check_images, check_model, input_gradients, rows_for
from agop.model.undisturbed import preserved_random_state
from agop.statistic.agop import AGOP
from agop.statistic.collector import Collector
from agop.statistic.provenance import CHECKPOINT
from agop.system.progress import track

_IMAGE_KEYS = ("pixel_values", "images", "image", "x")
_LABEL_KEYS = ("labels", "label", "targets", "target", "y")
# Number of images on which a prepared copy is compared with the model, and the tolerance as a share of the norm: a ReLU
# whose input is 0 up to rounding may flip.
_COMPARED_IMAGES, _TOLERANCE = 8, 0.01


def fit(
    model: nn.Module,
    loader: Iterable[Any],
    only_correct: bool = True,
    per_class: bool = False,
    progress: bool = True,
    *,
    nan: str = "raise",
    patches: bool = True,
    layer: Layer = None,
    rank: int = 0,
    output: str = "predicted",
    references: int = 0,
    batch_size: int | None = None,
    snapshot: Callable[[AGOP], object] | None = None,
    snapshot_every: float = 60,
) -> AGOP:
    """The AGOP of a trained model over a loader of (images, labels) or dicts; images alone without only_correct.

    Under torch.distributed each rank passes its share of the data and gets the AGOP of all. With nan="skip", samples
    whose gradient isn't finite are skipped and counted.

    `patches` collects the patch matrix at a layer, by default the first convolution if there is one. `rank`=ℓ > 0 also
    collects a sketch of M with ℓ rows. With output="contrast", gradients are those of the log-odds: the predicted
    class's logit minus the log-sum-exp of the others. `references`=64 keeps 64 of the counted images, for methods that
    start from reference images. They are stored in the AGOP file: whoever has the file has these training images.

    `batch_size` bounds the images per forward pass, whatever the
    loader's batches; the default suits the image size. `snapshot` is called with this rank's AGOP so far every
    `snapshot_every` seconds, at the end of the pass, and if it is interrupted.
    """
    check_model(model)
    if isinstance(loader, (Tensor, Dataset)):
        raise InputError(
            f"loader is a {type(loader).__name__}: wrap it, torch.utils.data.DataLoader(data, batch_size=64)"
        )
    collector = Collector(
        model, only_correct=only_correct, per_class=per_class, nan=nan, patches=patches, layer=layer, rank=rank,
        output=output, references=references,
    )  # fmt: skip
    with _snapshots(model, collector, snapshot, snapshot_every) as take_if_due:
        with preserved_random_state(list(model.parameters())):  # the loader draws random numbers
            prepared: nn.Module | None = None
            for batch in track(loader, "agop", show=progress):
                images, labels = images_and_labels(batch)
                check_images(images)
                rows = rows_for(images, batch_size, model)
                if prepared is None:
                    prepared = prepare_if_equal(model, images[:1], rows)
                collector.add(prepared, images, labels, rows)
                take_if_due()
        take_if_due(at_end=True)  # before the ranks join, which may fail
        sums = collector.total("the loader is empty: check the data set and the batch size")
    return AGOP.from_sums(sums, model, CHECKPOINT, collector.options)


@contextmanager
def _snapshots(
    model: nn.Module, collector: Collector, take: Callable[[AGOP], object] | None, every: float
) -> Iterator[Callable[..., None]]:
    """A function that takes a snapshot if one is due. A snapshot is also taken if an error ends the block."""
    last = time.monotonic()

    def snapshot() -> None:
        if take is not None and collector.consistent and collector.sums.count:
            try:
                take(AGOP.from_sums(collector.sums, model, CHECKPOINT, collector.options))
            except FileError as error:
                warn(f"no snapshot was written: {error}")

    def take_if_due(at_end: bool = False) -> None:
        nonlocal last
        if at_end or time.monotonic() - last >= every:
            snapshot()
            last = time.monotonic()

    try:
        yield take_if_due
    except BaseException:  # also KeyboardInterrupt, and signals when another rank ended
        snapshot()
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


def prepare_if_equal(model: nn.Module, image: Tensor, rows: int) -> nn.Module:
    """A prepared copy if there are batch norms to fold and it gives the same logits and gradients, else the model.

    `image` (1,C,H,W) is one of its images, `rows` the maximum number of images at once. They are compared on noise of
    the image's size: the decision must be the same on all ranks, whose data differ.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    count = min(rows, _COMPARED_IMAGES)
    noise = torch.randn((count, *image.shape[1:]), generator=torch.Generator().manual_seed(0)).to(image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)
            prepared = prepare(model)
        ours, theirs = (input_gradients(m, noise) for m in (model, prepared))
    except Exception:  # a model that can't be copied or rewritten still works as it is
        return model
    return prepared if _close(ours.logits, theirs.logits) and _close(ours.values, theirs.values) else model


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).norm() <= _TOLERANCE * a.norm())
