"""`agop explain`: overlays, raw maps and a manifest for image files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agop.cli import options
from agop.errors import InputError, warn


def explain(
    model: options.Model,
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method from `agop list`, or package.module:CLASS. Repeat it to compare several methods. "
            "Default: agop-weighted with --prior, vanilla without."
        ),
    ] = None,
    prior: options.Prior = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explanations"),
    target: Annotated[int | None, typer.Option(help="Class to explain, by number. Default: the predicted one.")] = None,
    layer: options.Layer = None,
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    scale: options.Scale = "own",
    percentile: options.Percentile = 98.0,
    opacity: options.Opacity = 1.0,
    colours: options.Colours = "inferno",
) -> None:
    """Explain images: write a sheet of overlays per image, the raw maps in one file, and a JSON manifest."""
    from agop import methods
    from agop.methods.base import takes_layer
    from agop.pictures.class_names import class_names
    from agop.pictures.colouring import Colouring
    from agop.pictures.explained import Explainer
    from agop.pictures.explanation_folder import ExplanationFolder, common_folder
    from agop.statistic.agop import AGOP
    from agop.system.progress import track

    colouring = Colouring(scale, percentile, opacity, colours)
    names = method or (["agop-weighted"] if prior else ["vanilla"])
    if layer is not None and not any(takes_layer(methods.get(name)) for name in names):
        raise InputError(f"--layer is for gradcam and gradcam++, not for {', '.join(names)}: remove it")
    for name in names:
        methods.create(name)
    statistic = None if prior is None else AGOP.load(prior)
    preprocessing = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, preprocessing)
    files = _image_files(images)
    network = options.load_model_on_device(model, weights, classes, device)
    explainer = Explainer(
        network, names, preprocessing, statistic, target, layer, batch_size, class_names(statistic)
    )  # fmt: skip
    skipped: list[str] = []

    def skip(message: str) -> None:
        skipped.append(message)
        warn(f"skipped: {message}")

    folder = ExplanationFolder(out, explainer, common_folder(files), colouring)
    for explained in track(explainer.explained(files, skip), "explaining", total=len(files)):
        folder.add(explained)
    folder.finish(options.manifest_source(model, weights, prior), skipped)
    count = len(folder.entries)
    Console(soft_wrap=True, highlight=False, markup=False).print(
        f"wrote {count} image{'' if count == 1 else 's'}, maps.safetensors and manifest.json to {out}/"
    )


def _image_files(paths: list[Path]) -> list[Path]:
    """The files, and the image files in the folders."""
    from agop.pictures.folders import image_files

    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: pass images, or folders of images")
        inside = image_files(path) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path} has no images: pass another folder")
        files += inside
    return files
