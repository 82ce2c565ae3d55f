"""`agop evaluate`: methods scored against masks on a user's own model, as a table and a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agop.cli import options

if TYPE_CHECKING:
    from agop.evaluating.table import Evaluation
    from agop.pictures.image_mask_pairs import ImageMaskPairs
    from agop.pictures.preprocessing import Preprocessing


def evaluate(
    model: options.Model,
    pictures: Annotated[Path, typer.Argument(help="A folder of pictures; in class folders, accuracy is told, too.")],
    masks: Annotated[Path, typer.Argument(help="A folder of masks, each with its picture's place and name.")],
    prior: Annotated[Path | None, typer.Option(help="The model's AGOP file, from `agop fit` or a hook.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method, or package.module:CLASS; can be given several times.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only this metric; can be given several times.")] = None,
    out: Annotated[Path, typer.Option(help="The run folder to write.")] = Path("runs/evaluation"),
    layer: Annotated[str | None, typer.Option(help="The layer for gradcam and gradcam++, by name.")] = None,
    threshold: Annotated[int | None, typer.Option(min=1, max=255, help="Mask values from here on are inside.")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first so many pictures.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of deletion and insertion.")] = None,
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
) -> None:
    """Score methods on pictures with masks: a table here, and a run folder for `agop report`."""
    from agop import methods
    from agop.evaluating.evaluate import evaluate as score
    from agop.evaluating.table import check_place
    from agop.pictures.image_mask_pairs import load_image_mask_pairs
    from agop.runs.about import command_line
    from agop.runs.gallery import spread
    from agop.statistic.agop import AGOP

    for each in method or ():
        methods.create(each)
    statistic = None if prior is None else AGOP.load(prior)
    how = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, how)
    name = pictures.resolve().name
    check_place(out, name)
    known = statistic.provenance.data.classes if statistic else ()
    data = load_image_mask_pairs(pictures, masks, how, threshold, first, known)
    network = options.load_model_on_device(model, weights, classes, device)
    found = score(
        network, data.images, data.masks, method, statistic, metric,
        layer=layer, batch_size=batch_size, steps=steps, labels=data.labels,
    )  # fmt: skip
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(str(found))
    told = {
        "command": command_line(),
        "classes": {name: list(data.classes or known)},
        "samples": {name: [data.names[place] for place in spread(len(data.names))]},
        "network": f"{model} on {pictures}",
    }
    _as_seen(found, data, how).save(out, name, **told)
    console.print(f"\nrows: {out}/rows.jsonl · page: agop report {out}")


def _as_seen(found: Evaluation, data: ImageMaskPairs, how: Preprocessing) -> Evaluation:
    """The evaluation, its pictures in their own colours."""
    from agop.pictures.heat import pixels
    from agop.runs.gallery import spread

    shown = pixels(data.images[spread(len(data.images))], *how.extremes)
    return replace(found, gallery=replace(found.gallery, pictures=shown))
