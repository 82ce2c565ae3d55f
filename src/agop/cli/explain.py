"""`agop explain`: overlays, a page with all of them, raw maps and a manifest for image files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli import options
from agop.cli.printing import plain_console
from agop.errors import InputError, warn

if TYPE_CHECKING:
    from agop.pictures.image_files import Skip
    from agop.pictures.predictions import Prediction
    from agop.statistic.agop import AGOP

# Predictions that are printed; the page lists all.
_PRINTED = 20


def explain(
    model: options.Model,
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method from `agop list`, or package.module:CLASS. Repeat it to compare several methods; all: every "
            "method. Set options with METHOD:OPTION=VALUE,OPTION=VALUE. "
            "Default: agop with --prior, vanilla without."
        ),
    ] = None,
    prior: options.Prior = None,
    references: options.References = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explanations"),
    target: Annotated[
        str | None, typer.Option(help="Class to explain, by name or number. Default: the predicted one.")
    ] = None,
    layer: options.Layer = None,
    contrast: options.Contrast = None,
    weights: options.Weights = None,
    num_classes: options.NumClasses = None,
    names: options.Names = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    force: options.Force = False,
    scale: options.Scale = "own",
    percentile: options.Percentile = 98.0,
    opacity: options.Opacity = 1.0,
    colours: options.Colours = "inferno",
) -> None:
    """Explain images: write a sheet of overlays per image, index.html with all images, the raw maps, and a manifest."""
    from agop.model.probe import number_of_classes
    from agop.pictures.class_names import class_index, class_names
    from agop.pictures.colouring import Colouring
    from agop.pictures.explained import Explainer
    from agop.pictures.explanation_folder import ExplanationFolder
    from agop.pictures.explanation_outputs import ExplanationOutputs
    from agop.pictures.predictions import label_of
    from agop.statistic.agop import AGOP
    from agop.system.progress import track

    colouring = Colouring(scale, percentile, opacity, colours)
    skipped: list[str] = []

    def skip(message: str) -> None:
        skipped.append(message)
        warn(f"skipped: {message}")

    statistic = None if prior is None else AGOP.load(prior)
    methods = _methods(method, layer, statistic, references)
    preprocessing = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, preprocessing)
    folders = _image_files(images, skip)
    files = [path for path, _ in folders]
    options.check_writable(out / "index.html")
    outputs = ExplanationOutputs(out, files)
    outputs.check([*files, Path(model), weights, prior, names], force=force)
    network = options.load_model_on_device(model, weights, num_classes, device)
    class_count = number_of_classes(network, preprocessing.zeros())
    known = class_names(statistic, names, class_count, network)
    explainer = Explainer(
        network, methods, preprocessing, statistic, None if target is None else class_index(target, known), layer,
        batch_size, known, references=options.load_references(references, preprocessing),
        output=options.output_of(contrast, statistic),
    )  # fmt: skip
    labels = {path: label_of(path, folder, known) for path, folder in folders}
    source = options.manifest_source(model, weights, prior)
    if references is not None:
        source["references"] = str(references)
    folder = ExplanationFolder(outputs, explainer, source, labels, colouring)
    for explained in track(explainer.explained(files, skip), "explaining", total=len(files)):
        folder.add(explained)
    folder.finish(skipped)
    _print_predictions(folder.predictions, known, out)


def _methods(names: list[str] | None, layer: str | None, prior: AGOP | None, references: Path | None) -> list[str]:
    """Names of the methods, without repeats. Raises for unknown ones and invalid options."""
    from agop import methods
    from agop.methods.base import takes_layer

    selected: list[str] = []
    for name in names or (["vanilla"] if prior is None else ["agop"]):
        every = methods.runnable(prior, with_references=references is not None)
        selected += every if name == "all" else [name]
    kinds = [methods.get(name) for name in selected]
    if layer is not None and not any(takes_layer(kind) and not kind.uses_first_layer for kind in kinds):
        raise InputError(f"--layer is for gradcam and gradcam++, not for {', '.join(selected)}: remove it")
    for name in selected:
        methods.create(name)
    return list(dict.fromkeys(selected))


def _image_files(paths: list[Path], skip: Skip) -> list[tuple[Path, Path | None]]:
    """The files, and the image files in the folders, each with its folder."""
    from agop.pictures.image_files import image_files

    files: list[tuple[Path, Path | None]] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: pass images, or folders of images")
        inside: list[tuple[Path, Path | None]] = (
            [(file, path) for file in image_files(path, skip)] if path.is_dir() else [(path, None)]
        )
        if not inside:
            raise InputError(f"{path} has no images: pass another folder")
        files += inside
    return files


def _print_predictions(predictions: Sequence[Prediction], names: Sequence[str], out: Path) -> None:
    from agop.pictures.predictions import lines, summary

    console = plain_console()
    for line in lines(predictions, names, _PRINTED):
        console.print(line)
    if len(predictions) > _PRINTED:
        console.print(f"… and {len(predictions) - _PRINTED:,} more in {out / 'index.html'}")
    console.print(summary(predictions))
    console.print(f"wrote {out}/index.html, overlays/, maps.safetensors and manifest.json")
