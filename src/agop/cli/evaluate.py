"""`agop evaluate`: methods scored against masks or on grids, on a user's own model, as a table and a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.cli.printing import plain_console
from agop.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from agop.evaluating.grid import GridEvaluation
    from agop.evaluating.table import Evaluation
    from agop.pictures.image_mask_pairs import ImageMaskPairs
    from agop.pictures.preprocessing import Preprocessing
    from agop.statistic.agop import AGOP


def evaluate(
    model: options.Model,
    pictures: Annotated[Path, typer.Argument(help="Folder of images. With class folders, accuracy is also reported.")],
    masks: Annotated[
        Path | None,
        typer.Argument(help="Folder of masks, each with the relative path of its image. Optional with --grid."),
    ] = None,
    prior: options.Prior = None,
    references: options.References = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option."),
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only this metric; repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder to write.")] = Path("runs/evaluation"),
    layer: options.Layer = None,
    contrast: options.Contrast = None,
    threshold: Annotated[
        int | None, typer.Option(min=1, max=255, help="Mask values from this one on are inside.")
    ] = None,
    controls: Annotated[
        bool, typer.Option(help="Also score maps that don't depend on the model: a central blob and the mean mask.")
    ] = True,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first N images.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps for deletion and insertion.")] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Grid pointing game: score maps of four classes on 2×2 grids of images.")
    ] = False,
    grids: Annotated[int | None, typer.Option(min=1, help="At most this many grids. Default: 100.")] = None,
    confidence: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Smallest probability of the class, for images in a grid. Default: 0.9."),
    ] = None,
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
    """Score methods on images with masks, or on grids: print a table and write a run folder for `agop report`."""
    from agop import methods
    from agop.evaluating.grid_images import CONFIDENCE, GRIDS, check_accepts_grids
    from agop.evaluating.table import check_place
    from agop.model.probe import number_of_classes
    from agop.pictures.class_names import class_names
    from agop.pictures.image_mask_pairs import load_image_mask_pairs
    from agop.report.advice import advice
    from agop.report.run import Run
    from agop.runs.about import command_line
    from agop.runs.gallery import spread
    from agop.statistic.agop import AGOP

    _check_options(masks, grid, {"--grids": grids, "--confidence": confidence}, {"--metric": metric, "--steps": steps})
    for method_name in method or ():
        methods.create(method_name)  # raises before the images are read
    statistic = None if prior is None else AGOP.load(prior)
    how = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, how)
    name = pictures.resolve().name
    check_place(out, name)
    network = options.load_model_on_device(model, weights, num_classes, device)
    count = number_of_classes(network, how.zeros())
    if grid:
        check_accepts_grids(network, how.zeros())
    classes = class_names(statistic, names, count)
    data = load_image_mask_pairs(pictures, masks, how, threshold, first, classes, count)
    shared: dict[str, Any] = {
        "layer": layer,
        "batch_size": batch_size,
        "references": options.load_references(references, how),
        "output": options.output_of(contrast, statistic),
    }
    evaluation: Evaluation
    if grid:
        chosen = {"grids": grids or GRIDS, "confidence": CONFIDENCE if confidence is None else confidence}
        evaluation = _on_grids(network, data, how, method, statistic, **shared, **chosen)
    else:
        evaluation = _on_masks(network, data, how, method, statistic, metric, **shared, steps=steps, controls=controls)
    console = plain_console()
    console.print(str(evaluation))
    about = {
        "command": command_line(),
        "classes": {name: list(data.classes or classes)},
        "network": f"{model} on {pictures}",
    }
    if not grid:
        about["samples"] = {name: [data.names[place] for place in spread(len(data.names))]}
    evaluation.save(out, name, **about)
    console.print(f"\nIn short: {advice(Run(out))}")
    console.print(f"rows: {out}/rows.jsonl · page: agop report {out}")


def _check_options(masks: Path | None, grid: bool, of_grids: dict[str, Any], of_masks: dict[str, Any]) -> None:
    """Raise unless there are masks or --grid, with the options that belong to it."""
    if masks is None and not grid:
        raise InputError(
            "masks are missing: pass a folder of masks after the images, or --grid for the grid pointing game, which "
            "needs none"
        )
    unused = [name for name, value in (of_masks if grid else of_grids).items() if value not in (None, [])]
    if unused and grid:
        raise InputError(f"{unused[0]} has no effect with --grid: remove it")
    if unused:
        raise InputError(f"{unused[0]} has no effect without --grid: add --grid")


def _on_masks(
    network: nn.Module, data: ImageMaskPairs, how: Preprocessing, method: list[str] | None, prior: AGOP | None,
    metric: list[str] | None, **options: Any,
) -> Evaluation:  # fmt: skip
    """Scores against the masks, with the gallery's images before normalisation."""
    from agop.evaluating.evaluate import evaluate as score
    from agop.pictures.heat import pixels
    from agop.runs.gallery import spread

    masks: Any = data.masks  # not None: _check_options raised
    evaluation = score(network, data.images, masks, method, prior, metric, labels=data.labels, **options)
    pictures = pixels(data.images[spread(len(data.images))], *how.extremes)
    return replace(evaluation, gallery=replace(evaluation.gallery, pictures=pictures))


def _on_grids(
    network: nn.Module, data: ImageMaskPairs, how: Preprocessing, method: list[str] | None, prior: AGOP | None,
    **options: Any,
) -> GridEvaluation:  # fmt: skip
    """Scores on grids, with the gallery's images before normalisation."""
    from agop.evaluating.grid import grid_pointing_game

    if data.labels is None:
        raise InputError("--grid needs the class of each image: put the images in PICTURES/CLASS/NAME.png")
    evaluation = grid_pointing_game(network, data.images, data.labels, method, prior, masks=data.masks, **options)
    pictures = evaluation.shown_pictures(data.images, *how.extremes)
    return replace(evaluation, gallery=replace(evaluation.gallery, pictures=pictures))
