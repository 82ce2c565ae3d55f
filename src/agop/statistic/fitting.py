"""fit(): the accumulator over a loader, for a model already trained."""

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
from agop.model.preparing import prepare
from agop.model.probe import check_images, check_model, input_gradients, rows_for
from agop.model.undisturbed import preserved_random_state
from agop.statistic.agop import AGOP
from agop.statistic.collector import Collector
from agop.statistic.provenance import CHECKPOINT
from agop.system.progress import track

_IMAGE_KEYS = ("pixel_values", "images", "image", "x")
_LABEL_KEYS = ("labels", "label", "targets", "target", "y")
# Images on which a prepared copy is compared with the model, and how far it may be off, as a share of the norm: a unit
# whose ReLU has 0 to rounding as its input may differ.
_COMPARED, _OFF = 8, 0.01


def fit(
    model: nn.Module,
    loader: Iterable[Any],
    only_correct: bool = True,
    per_class: bool = False,
    progress: bool = True,
    *,
    nan: str = "raise",
    batch_size: int | None = None,
    snapshot: Callable[[AGOP], object] | None = None,
    snapshot_every: float = 60,
) -> AGOP:
    """The AGOP of a trained model over a loader of (images, labels) or dicts; images alone without only_correct.

    Under torch.distributed each rank passes its share of the data and gets the statistic of all.
    With nan="skip" samples whose gradient is not finite are left out and counted. `batch_size` bounds how many images
    go through the model at once; by default what suits their size, however many the loader gives. `snapshot` is
    called with the statistic so far (of this rank) every so many seconds, and at the end of the pass.
    """
    check_model(model)
    if isinstance(loader, (Tensor, Dataset)):
        raise InputError(
            f"loader is a {type(loader).__name__}: wrap it, torch.utils.data.DataLoader(data, batch_size=64)"
        )
    collector = Collector(only_correct, per_class, nan)
    with _snapshots(model, collector, snapshot, snapshot_every) as now_and_then:
        with preserved_random_state(list(model.parameters())):  # a loader draws, too
            faster: nn.Module | None = None
            for batch in track(loader, "agop", show=progress):
                images, labels = images_and_labels(batch)
                check_images(images)
                rows = rows_for(images, batch_size)
                if faster is None:
                    faster = _prepared_if_equal(model, images[:1], min(rows, _COMPARED))
                collector.add(faster, images, labels, rows)
                now_and_then()
        now_and_then(at_end=True)  # before the ranks join: what follows may fail
        sums = collector.total("the loader is empty: check the data set and the batch size")
    return AGOP.from_sums(sums, model, CHECKPOINT, collector.options)


@contextmanager
def _snapshots(
    model: nn.Module, collector: Collector, take: Callable[[AGOP], object] | None, every: float
) -> Iterator[Callable[..., None]]:
    """A function that takes a snapshot if it is time for one; one is taken, too, if an error ends the block."""
    last = time.monotonic()

    def snapshot() -> None:
        if take is not None and collector.whole and collector.sums.count:
            try:
                take(AGOP.from_sums(collector.sums, model, CHECKPOINT, collector.options))
            except FileError as error:
                warn(f"no snapshot was written: {error}")

    def now_and_then(at_end: bool = False) -> None:
        nonlocal last
        if at_end or time.monotonic() - last >= every:
            snapshot()
            last = time.monotonic()

    try:
        yield now_and_then
    except BaseException:  # also the end of the process, by hand or because another rank has ended
        snapshot()
        raise


def images_and_labels(batch: Any) -> tuple[Any, Any]:
    """Images and labels, or None for these, of a batch as loaders give them: a tuple, a dict or images alone."""
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        images = next((batch[key] for key in _IMAGE_KEYS if key in batch), None)
        labels = next((batch[key] for key in _LABEL_KEYS if key in batch), None)
        if images is None:
            raise InputError(f"a batch has keys {list(batch)}, none of them {', '.join(_IMAGE_KEYS)}: rename one")
        return images, labels
    if isinstance(batch, (tuple, list)) and batch:
        return batch[0], batch[1] if len(batch) > 1 else None
    raise InputError(f"a batch is a {type(batch).__name__}: the loader should give (images, labels)")


def _prepared_if_equal(model: nn.Module, image: Tensor, count: int) -> nn.Module:
    """A prepared copy where there is something to fold and it is seen to give the same logits and gradients.

    Seen on noise of the image's size: what is decided must not depend on the data, of which another process has other.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    noise = torch.randn((count, *image.shape[1:]), generator=torch.Generator().manual_seed(0)).to(image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)
            prepared = prepare(model)
        ours, theirs = (input_gradients(m, noise) for m in (model, prepared))
    except Exception:  # whatever keeps a model from being copied or rewritten, the model itself still works
        return model
    return prepared if _close(ours.logits, theirs.logits) and _close(ours.values, theirs.values) else model


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).norm() <= _OFF * a.norm())
