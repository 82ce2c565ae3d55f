"""`agop evaluate`: methods scored against masks on a user's own model, as a table and a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli import options
from agop.cli.printing import plain_console

if TYPE_CHECKING:
    from agop.evaluating.table import Evaluation
    from agop.pictures.image_mask_pairs import ImageMaskPairs
    from agop.pictures.preprocessing import Preprocessing


def evaluate(
    model: options.Model,
    pictures: Annotated[Path, typer.Argument(help="Folder of images. With class folders, accuracy is also reported.")],
    masks: Annotated[Path, typer.Argument(help="Folder of masks, each with the relative path of its image.")],
    prior: options.Prior = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option."),
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only this metric; repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder to write.")] = Path("runs/evaluation"),
    layer: options.Layer = None,
    threshold: Annotated[
        int | None, typer.Option(min=1, max=255, help="Mask values from this one on are inside.")
    ] = None,
    controls: Annotated[
        bool, typer.Option(help="Also score maps that don't depend on the model: a central blob and the mean mask.")
    ] = True,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first N images.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps for deletion and insertion.")] = None,
    weights: options.Weights = None,
    num_classes: options.NumClasses = None,
    names: options.Names = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
) -> None:
    """Score methods on images with masks: print a table and write a run folder for `agop report`."""
    from agop import methods
    from agop.evaluating.evaluate import evaluate as score
    from agop.evaluating.table import check_place
    from agop.model.probe import number_of_classes
    from agop.pictures.class_names import class_names
    from agop.pictures.image_mask_pairs import load_image_mask_pairs
    from agop.report.advice import advice
    from agop.report.run import Run
    from agop.runs.about import command_line
    from agop.runs.gallery import spread
    from agop.statistic.agop import AGOP

    for method_name in method or ():
        methods.create(method_name)  # raises before the images are read
    statistic = None if prior is None else AGOP.load(prior)
    how = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, how)
    name = pictures.resolve().name
    check_place(out, name)
    network = options.load_model_on_device(model, weights, num_classes, device)
    count = number_of_classes(network, how.zeros())
    classes = class_names(statistic, names, count)
    data = load_image_mask_pairs(pictures, masks, how, threshold, first, classes, count)
    evaluation = score(
        network, data.images, data.masks, method, statistic, metric,
        layer=layer, batch_size=batch_size, steps=steps, labels=data.labels, controls=controls,
    )  # fmt: skip
    console = plain_console()
    console.print(str(evaluation))
    about = {
        "command": command_line(),
        "classes": {name: list(data.classes or classes)},
        "samples": {name: [data.names[place] for place in spread(len(data.names))]},
        "network": f"{model} on {pictures}",
    }
    _with_original_colours(evaluation, data, how).save(out, name, **about)
    console.print(f"\nIn short: {advice(Run(out))}")
    console.print(f"rows: {out}/rows.jsonl · page: agop report {out}")


def _with_original_colours(evaluation: Evaluation, data: ImageMaskPairs, how: Preprocessing) -> Evaluation:
    """The evaluation with the gallery's images before normalisation."""
    from agop.pictures.heat import pixels
    from agop.runs.gallery import spread

    pictures = pixels(data.images[spread(len(data.images))], *how.extremes)
    return replace(evaluation, gallery=replace(evaluation.gallery, pictures=pictures))
