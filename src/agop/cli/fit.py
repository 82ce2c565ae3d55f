"""`agop fit`: compute the AGOP of a trained model over a folder of images, in one process or under torchrun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.cli.printing import plain_console
from agop.cli.stopping import deferred_signals
from agop.errors import AGOPError, warn

if TYPE_CHECKING:
    from torch import Tensor

    from agop.pictures.folders import Batches, ClassFolders
    from agop.statistic.agop import AGOP
    from agop.statistic.provenance import DataProvenance

# Images read at once. `fit` decides how many of them go through the model at once.
_READ_BATCH = 32
# Seconds between snapshots under torchrun, where the end of one rank ends all.
_SNAPSHOT_SECONDS = 60.0
# An accuracy of up to 1.5 times 1/classes, and at most 60 %, over at least 20 images looks like chance.
_CHANCE_FACTOR, _CHANCE_LIMIT, _CHANCE_IMAGES = 1.5, 0.6, 20


def fit(
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="Folder with one folder of images per class.")],
    out: Annotated[Path, typer.Option(help="AGOP file to write.")] = Path("prior.safetensors"),
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes that read images.")] = 0,
    per_class: Annotated[bool, typer.Option("--per-class", help="Also keep one diagonal per class.")] = False,
    all_samples: Annotated[bool, typer.Option("--all-samples", help="Also count misclassified samples.")] = False,
    skip_nan: Annotated[bool, typer.Option("--skip-nan", help="Skip samples with NaN or infinite gradients.")] = False,
    snapshot_every: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds between snapshots in OUT.part-rankN. Default: 60 under torchrun, else none."),
    ] = None,
    device: options.Device = None,
    force: options.Force = False,
) -> None:
    """Compute the AGOP of a trained model over its training images and save it."""
    from agop.pictures.folders import ClassFolders
    from agop.statistic.fitting import fit as fit_model
    from agop.system.distributed import barrier, process_group, rank_and_world_size

    preprocessing = options.preprocessing(model, size, mean, std, gray)
    with process_group(gpus=device is None or device.startswith("cuda")):
        rank, world_size = rank_and_world_size()
        if rank == 0:
            options.check_out(out, [weights, Path(model), data], force=force)
        images = ClassFolders(data, preprocessing)
        loaded = options.load_model_on_device(model, weights, classes, device)
        rule: dict[str, Any] = {
            "only_correct": not all_samples,
            "per_class": per_class,
            "nan": "skip" if skip_nan else "raise",
        }
        provenance = _data_provenance(images)
        _check_same(loaded, provenance, rule)
        if world_size > 1 and snapshot_every is None:
            snapshot_every = _SNAPSHOT_SECONDS
        part = _Part(out, provenance, rank, world_size)
        with part.mentioned_in_errors():
            prior = fit_model(
                loaded,
                _BatchesThenBarrier(images.share(rank, world_size).batches(batch_size or _READ_BATCH, workers)),
                progress=rank == 0,
                batch_size=batch_size,
                snapshot=None if snapshot_every is None else part.write,
                snapshot_every=snapshot_every or 0,
                **rule,
            )
            prior = _with_provenance(prior, provenance)
            if rank == 0:
                prior.save(out)
            barrier()  # the parts stay until the whole file is written
        if snapshot_every is not None:
            part.path.unlink(missing_ok=True)
    if rank == 0:
        _print_result(prior, images, data, out)
        if not all_samples:
            _warn_if_chance(prior, images, weights)


def _data_provenance(images: ClassFolders) -> DataProvenance:
    """Class names, preprocessing and a digest of the images."""
    from agop.statistic.provenance import DataProvenance

    return DataProvenance.from_dict(
        {"classes": images.classes, "preprocessing": images.preprocessing.to_dict(), "pictures": images.summary()}
    )


def _check_same(model: Any, data: DataProvenance, rule: dict[str, Any]) -> None:
    """Raise unless all ranks have the same model, images and options: otherwise their sums can't be added."""
    from agop.model.fingerprint import fingerprint
    from agop.system.distributed import check_same_on_all_ranks

    images = data.pictures and f"{data.pictures.count} ({data.pictures.names})"
    settings = {"model": fingerprint(model), "images": images, "preprocessing": data.preprocessing}
    check_same_on_all_ranks(settings | rule)


def _with_provenance(prior: AGOP, data: DataProvenance, **entries: Any) -> AGOP:
    return replace(prior, provenance=replace(prior.provenance, data=data, **entries))


@dataclass(frozen=True)
class _BatchesThenBarrier:
    """Batches of one rank, then a barrier: a missing rank is named before the ranks add their sums."""

    batches: Batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        from agop.system.distributed import barrier

        yield from self.batches
        barrier()


class _Part:
    """Snapshots of one rank as an AGOP file next to OUT. `agop merge` joins those of all ranks."""

    def __init__(self, out: Path, data: DataProvenance, rank: int, world_size: int) -> None:
        self.path = out.with_name(f"{out.stem}.part-rank{rank}{out.suffix}")
        self.written = False
        self._data, self._place = data, {"rank": rank, "ranks": world_size}

    def write(self, prior: AGOP) -> None:
        """Replace the previous snapshot."""
        with deferred_signals():  # torchrun's SIGTERM must not cut off the last snapshot
            _with_provenance(prior, self._data, **self._place).save(self.path)
            self.written = True

    @contextmanager
    def mentioned_in_errors(self) -> Iterator[None]:
        """Add the last snapshot to the message of whatever ends the work early."""
        try:
            yield
        except (AGOPError, KeyboardInterrupt) as error:
            if self.written:
                kept = f"the last snapshot is in {self.path}"
                error.args = (f"{error}; {kept}" if str(error) else kept,)
            raise


def _print_result(prior: AGOP, images: ClassFolders, data: Path, out: Path) -> None:
    console = plain_console()
    console.print(f"{prior.count:,} of {len(images):,} images counted")
    provenance = prior.provenance
    if len(images.classes) != provenance.classes:
        warn(f"{data} has {len(images.classes)} class folders, the model {provenance.classes} classes")
    if provenance.skipped:
        console.print(f"{provenance.skipped:,} skipped: NaN or infinite gradients")
    console.print(f"wrote {out}: {prior!r}")


def _warn_if_chance(prior: AGOP, images: ClassFolders, weights: Path | None) -> None:
    """Warn if the model's accuracy looks like chance."""
    classes, accuracy = prior.provenance.classes or len(images.classes), prior.count / len(images)
    looks_like_chance = len(images) >= _CHANCE_IMAGES and accuracy <= min(_CHANCE_FACTOR / classes, _CHANCE_LIMIT)
    if not looks_like_chance and accuracy * classes >= 1:
        return
    forgotten = "did you forget --weights, " if weights is None else ""
    folders = ", ".join(images.classes[:5])
    warn(
        f"the model classifies {100 * accuracy:.0f} % of the images correctly, hardly better than chance for {classes} "
        f"classes: {forgotten}are the class folders {folders} its classes 0, 1, … in this order, and are size, mean "
        "and std as in training?"
    )
