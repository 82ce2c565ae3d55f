"""`agop fit`, `agop merge` and `agop show`: compute, join and draw AGOP files. `fit` also runs under torchrun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.cli.checks import READ_BATCH, chance, look_at, open_images
from agop.cli.printing import deferred_signals, plain_console
from agop.errors import AGOPError, InputError, warn
from agop.processes import torchrun_rank

if TYPE_CHECKING:
    from agop.images.files import ImageFolder
    from agop.prior.agop import AGOP, DataProvenance

# Seconds between snapshots under torchrun, where the end of one rank ends all.
_SNAPSHOT_SECONDS = 60.0
# Diagonals per class are kept by default if the file has up to 128 MiB: 111 classes at 224 px. Collecting them takes
# three times as much memory. 1,000 classes at 224 px would be a file of 1.1 GiB.
_CLASS_BYTES = 2**27
# Classes that `agop show` lists.
_LISTED = 23


@options.command
def fit(
    *,
    model: options.Model,
    data: Annotated[Path, "Folder with one folder of images per class; with --all-samples, of any images."],
    out: Annotated[Path, "AGOP file to write."] = Path("prior.safetensors"),
    names: options.Names = None,
    batch_size: options.BatchSize = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes that read images.")] = 0,
    per_class: Annotated[bool | None, "Also keep one diagonal per class. Default: if they take up to 128 MiB."] = None,
    all_samples: Annotated[bool, "Also count misclassified samples. Class folders aren't needed."] = False,
    skip_nan: Annotated[bool, "Skip samples with NaN or infinite gradients."] = False,
    patches: Annotated[bool, "Also keep the patch matrix of the first convolution, or of --layer."] = True,
    layer: Annotated[str | None, "Layer of the patch matrix, by name: maps or tokens."] = None,
    rank: Annotated[
        int, typer.Option(min=0, help="Also keep a sketch of the whole matrix with this many rows, for example 64.")
    ] = 0,
    output: options.Output = None,
    snapshot_every: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds between snapshots in OUT.part-rankN. Default: 60 under torchrun, else none."),
    ] = None,
    force: Annotated[
        bool,
        "Warn instead of raising if small images are enlarged, the number of class folders is wrong, or the "
        "accuracy is like chance. Overwrite an existing file that agop didn't write.",
    ] = False,
    how: options.ModelOptions,
) -> None:
    """Compute the AGOP of a trained model over its training images and save it."""
    from agop.collect.fit import fit as fit_model
    from agop.model.state import fingerprint
    from agop.prior.agop import DataProvenance, ImagesDigest
    from agop.processes import barrier, check_same_on_all_ranks, process_group, rank_and_world_size

    preprocessing = how.prepare(model)
    with process_group(gpus=how.device is None or how.device.startswith("cuda")):
        process, world_size = rank_and_world_size()
        if process == 0:
            options.check_out(out, [how.weights, Path(model), data, names], force=force)
        images = open_images(data, preprocessing, all_samples)
        loaded = how.load(model)
        images, class_count = look_at(
            images, loaded, how, all_samples=all_samples, names=names, batch_size=batch_size, force=force
        )
        rule: dict[str, Any] = {
            "only_correct": not all_samples,
            "per_class": _keeps_classes(images, class_count) if per_class is None else per_class,
            "nan": "skip" if skip_nan else "raise",
            "patches": patches,
            "layer": layer,
            "rank": rank,
            "output": options.output_of(output, None),
        }
        digest = ImagesDigest(**images.summary())
        provenance = DataProvenance(tuple(images.classes), images.preprocessing.to_dict(), digest)
        # Otherwise the sums of the ranks can't be added.
        check_same_on_all_ranks(
            {"model": fingerprint(loaded), "images": f"{digest.count} ({digest.names})",
             "preprocessing": provenance.preprocessing, **rule}
        )  # fmt: skip
        if world_size > 1 and snapshot_every is None:
            snapshot_every = _SNAPSHOT_SECONDS
        part = _Part(out, provenance, process, world_size)
        with part.mentioned_in_errors():
            prior = fit_model(
                loaded,
                # The barrier names a missing rank before the ranks add their sums.
                images.share(process, world_size).batches(batch_size or READ_BATCH, workers, at_end=barrier),
                progress=process == 0,
                batch_size=batch_size,
                snapshot=None if snapshot_every is None else part.write,
                snapshot_every=snapshot_every or 0,
                **rule,
            )
            prior = _with_provenance(prior, provenance)
            if process == 0:
                prior.save(out)
            barrier()  # the parts stay until the whole file is written
        if snapshot_every is not None:
            part.path.unlink(missing_ok=True)
    if process == 0:
        _print_result(prior, images, out)
        correct, labelled, majority = (getattr(prior.provenance, n) or 0 for n in ("correct", "labelled", "majority"))
        problem = chance(correct, labelled, majority, class_count, images, how.weights)
        if problem and not all_samples and not force:  # otherwise it is accepted
            warn(problem)


def _keeps_classes(images: ImageFolder, class_count: int) -> bool:
    """True if the diagonals per class are small enough to keep by default. Prints why if they aren't."""
    size = class_count * images.preprocessing.zeros().numel() * 8  # float64
    if size > _CLASS_BYTES and torchrun_rank()[0] == 0:
        plain_console().print(
            f"only the diagonal of all samples is kept: those of {class_count:,} classes take {size / 2**20:,.0f} MiB "
            "(--per-class keeps them)"
        )
    return size <= _CLASS_BYTES


def _with_provenance(prior: AGOP, data: DataProvenance, **entries: Any) -> AGOP:
    return replace(prior, provenance=replace(prior.provenance, data=data, **entries))


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


def _print_result(prior: AGOP, images: ImageFolder, out: Path) -> None:
    from agop.prior.show import Overview, few_samples, sketch_text

    console, provenance = plain_console(), prior.provenance
    accuracy = "unknown, there are no labels" if provenance.accuracy is None else f"{100 * provenance.accuracy:.1f} %"
    wrong = (provenance.labelled or 0) - (provenance.correct or 0) if provenance.options["only_correct"] else 0
    why = f", {wrong:,} are misclassified (--all-samples counts them, too)" if wrong else ""
    console.print(f"{prior.count:,} of {len(images):,} images counted{why}; accuracy: {accuracy}")
    if provenance.skipped:
        console.print(f"{provenance.skipped:,} skipped: NaN or infinite gradients")
    console.print(Overview.of(prior).line)
    if prior.sketch is not None:
        console.print(f"sketch of {sketch_text(prior)}")
    console.print(f"wrote {out}: {prior!r}; `agop show {out}` draws it")
    if message := few_samples(prior):
        warn(message)


@options.command
def merge(
    files: Annotated[list[Path], "AGOP files of one model over different images."],
    out: Annotated[Path, "AGOP file to write."] = Path("merged.safetensors"),
    force: options.Force = False,
) -> None:
    """Join AGOP files of one model over different images into one file."""
    from agop.prior.agop import AGOP
    from agop.prior.merge import merge as merge_priors

    options.check_out(out, files, force=force)
    merged = merge_priors([AGOP.load(path) for path in files], [str(path) for path in files])
    merged.save(out)
    plain_console().print(f"wrote {out}: {merged!r}, from {len(files)} files")


@options.command
def show(
    prior: Annotated[Path, "AGOP file, from `agop fit` or a training hook."],
    out: Annotated[Path | None, "PNG to write. Default: the file's name with .png, beside it."] = None,
    force: options.Force = False,
) -> None:
    """Show an AGOP file: what it holds, how concentrated diag(M) is in each class, and its maps as a PNG."""
    import numpy as np

    from agop.images.overlays import enlarged, in_rows
    from agop.io import check_overwrites, write_atomically
    from agop.prior.agop import AGOP
    from agop.prior.show import Overview, facts, few_samples, panels, png
    from agop.tables import Table

    path = prior.with_suffix(".png") if out is None else out
    if path.suffix.lower() != ".png":
        raise InputError(f"out {path} isn't a .png file: give {path.with_suffix('.png')}")
    options.check_writable(path)
    check_overwrites([path], [prior], force=force)
    statistic = AGOP.load(prior)
    console = plain_console()
    for name, text in facts(statistic).items():
        console.print(f"{name:<12} {text}")
    overview = Overview.of(statistic)
    console.print(f"\n{overview.line}\n")
    rows = [
        (part.label, f"{part.samples:,}", f"{part.hot.percent} %" if part.hot.share > 0 else "", part.hot.place)
        for part in (overview.whole, *overview.classes[:_LISTED])
    ]
    for line in Table(("", "samples", f"in {overview.whole.hot.pixels:,} pixels", "place"), rows).text():
        console.print(line)
    if len(overview.classes) > _LISTED:
        console.print(f"… and {len(overview.classes) - _LISTED:,} more")
    if warning := few_samples(statistic):
        warn(warning)
    maps = [(caption, enlarged(np.asarray(picture))) for caption, picture in panels(overview)]
    write_atomically(path, png(in_rows(maps)))
    console.print(f"\nwrote {path}")
