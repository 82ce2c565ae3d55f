"""`agop fit`: the AGOP of a trained model over a folder of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agop.cli import options
from agop.errors import warn


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
    batch_size: options.BatchSize = 32,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read pictures.")] = 0,
    per_class: Annotated[bool, typer.Option("--per-class", help="Keep a diagonal for each class, too.")] = False,
    all_samples: Annotated[bool, typer.Option("--all-samples", help="Count wrongly classified samples, too.")] = False,
    skip_nan: Annotated[bool, typer.Option("--skip-nan", help="Leave out samples with NaN gradients.")] = False,
    device: options.Device = None,
) -> None:
    """Collect the AGOP of a trained model over its training pictures, into one file."""
    from agop.fitting import fit as fit_model
    from agop.pictures import ClassFolders

    how = options.preprocessing(model, size, mean, std, gray)
    pictures = ClassFolders(data, how)
    prior = fit_model(
        options.placed_model(model, weights, classes, device),
        pictures.batches(batch_size, workers),
        only_correct=not all_samples,
        per_class=per_class,
        nan="skip" if skip_nan else "raise",
    )
    prior.provenance["data"] = {"classes": pictures.classes, "preprocessing": how.described()}
    prior.save(out)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{prior.count:,} of {len(pictures):,} pictures counted")
    if len(pictures.classes) != prior.provenance["classes"]:
        warn(f"{data} has {len(pictures.classes)} class folders, the model {prior.provenance['classes']} classes")
    if prior.count * prior.provenance["classes"] < len(pictures):
        warn(
            f"fewer were classified correctly than by chance: do the class folders {', '.join(pictures.classes[:5])} "
            "stand, in this order, for the model's classes 0, 1, …, and are size, mean and std as in training?"
        )
    if prior.provenance["skipped"]:
        console.print(f"{prior.provenance['skipped']:,} left out: NaN or infinite gradients")
    console.print(f"wrote {out}: {prior!r}")
