"""`agop fit`: the AGOP of a trained model over a folder of pictures, by one process or by the ranks of torchrun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from agop.cli import options
from agop.errors import warn

if TYPE_CHECKING:
    from agop.pictures.folders import ClassFolders
    from agop.statistic.agop import AGOP
    from agop.system.distributed import Ranks

# Pictures that are read at once; `fit` decides how many of them are in the model at once.
_READ_TOGETHER = 32
_SNAPSHOT_SECONDS = 60.0
# Up to so many times 1/classes right is as by chance, of at least so many pictures; of two classes less, 75 % is not.
_BY_CHANCE, _RATHER_MORE, _TELLING = 1.5, 0.6, 20


def fit(
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="A folder with a folder of pictures for each class.")],
    out: Annotated[Path, typer.Option(help="The AGOP file to write.")] = Path("prior.safetensors"),
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read pictures.")] = 0,
    per_class: Annotated[bool, typer.Option("--per-class", help="Keep a diagonal for each class, too.")] = False,
    all_samples: Annotated[bool, typer.Option("--all-samples", help="Count wrongly classified samples, too.")] = False,
    skip_nan: Annotated[bool, typer.Option("--skip-nan", help="Leave out samples with NaN gradients.")] = False,
    snapshot_every: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds after which what is counted so far goes into OUT.part-rankN; 60 in torchrun."
        ),
    ] = None,
    device: options.Device = None,
) -> None:
    """Collect the AGOP of a trained model over its training pictures, into one file."""
    from agop.pictures.folders import ClassFolders
    from agop.statistic.fitting import fit as fit_model
    from agop.system.distributed import ranks

    how = options.preprocessing(model, size, mean, std, gray)
    with ranks(gpus=device is None or device.startswith("cuda")) as here:
        if here.first:
            options.check_out(out)
        pictures = ClassFolders(data, how)
        placed = options.load_model_on_device(model, weights, classes, device)
        chosen: dict[str, Any] = {"only_correct": not all_samples, "per_class": per_class}
        chosen["nan"] = "skip" if skip_nan else "raise"
        part = _Part(out, pictures, here)
        _check_same(here, placed, part, chosen)
        if here.count > 1 and snapshot_every is None:
            snapshot_every = _SNAPSHOT_SECONDS
        prior = fit_model(
            placed,
            pictures.share(here.rank, here.count).batches(batch_size or _READ_TOGETHER, workers),
            progress=here.first,
            batch_size=batch_size,
            snapshot=None if snapshot_every is None else part.write,
            snapshot_every=snapshot_every or 0,
            **chosen,
        )
        prior.provenance["data"] = part.told
        if here.first:
            prior.save(out)
        here.meet()  # the whole is there before its parts go
        if snapshot_every is not None:
            part.path.unlink(missing_ok=True)
    if here.first:
        _tell(prior, pictures, data, out)
        if not all_samples:
            _warn_if_by_chance(prior, pictures, weights)


class _Part:
    """What one rank has counted so far, as an AGOP file beside the whole, for `agop merge`."""

    def __init__(self, out: Path, pictures: ClassFolders, here: Ranks) -> None:
        self.path = out.with_name(f"{out.stem}.part-rank{here.rank}{out.suffix}")
        self.told: dict[str, Any] = {
            "classes": pictures.classes,
            "preprocessing": pictures.preprocessing.to_dict(),
            "pictures": pictures.summary(),
        }
        self.here = here

    def write(self, prior: AGOP) -> None:
        """Write it, whole, over the last one."""
        prior.provenance.update(data=self.told, rank=self.here.rank, ranks=self.here.count)
        prior.save(self.path)
        self.here.kept = f"what was counted so far is in {self.path}"


def _check_same(here: Ranks, model: Any, part: _Part, chosen: dict[str, Any]) -> None:
    """Raise unless all ranks have the same model, pictures and options: shares of different things have no mean."""
    from agop.model.fingerprint import fingerprint

    listed, form = "{count} ({names})".format(**part.told["pictures"]), part.told["preprocessing"]
    here.same({"model": fingerprint(model), "pictures": listed, "form": form} | chosen)


def _tell(prior: AGOP, pictures: ClassFolders, data: Path, out: Path) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{prior.count:,} of {len(pictures):,} pictures counted")
    if len(pictures.classes) != prior.provenance["classes"]:
        warn(f"{data} has {len(pictures.classes)} class folders, the model {prior.provenance['classes']} classes")
    if prior.provenance["skipped"]:
        console.print(f"{prior.provenance['skipped']:,} left out: NaN or infinite gradients")
    console.print(f"wrote {out}: {prior!r}")


def _warn_if_by_chance(prior: AGOP, pictures: ClassFolders, weights: Path | None) -> None:
    """Warn if the model is right about as often as one that knows nothing."""
    classes, right = prior.provenance["classes"], prior.count / len(pictures)
    enough = len(pictures) >= _TELLING and right <= min(_BY_CHANCE / classes, _RATHER_MORE)
    if not enough and right * classes >= 1:
        return
    asked = "were its weights given (--weights), " if weights is None else ""
    folders = ", ".join(pictures.classes[:5])
    warn(
        f"the model is right on {100 * right:.0f} % of the pictures of {classes} classes, hardly better than chance: "
        f"{asked}do the class folders {folders} stand, in this order, for its classes 0, 1, …, and are size, mean and "
        "std as in training?"
    )
