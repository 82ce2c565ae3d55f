"""`agop explain`: overlays, raw maps and a manifest for pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agop.cli import options
from agop.errors import InputError, warn


def explain(
    model: options.Model,
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `agop list`, or package.module:CLASS; several give a sheet. "
            "agop-weighted with --prior, else vanilla."
        ),
    ] = None,
    prior: Annotated[Path | None, typer.Option(help="The model's AGOP file, from `agop fit` or a hook.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write into.")] = Path("explanations"),
    target: Annotated[int | None, typer.Option(help="The class to explain; by default the predicted one.")] = None,
    layer: Annotated[str | None, typer.Option(help="The layer for gradcam and gradcam++, by name.")] = None,
    weights: options.Weights = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
) -> None:
    """Explain pictures: an overlay PNG each, the raw maps in one file, and a JSON manifest."""
    from agop import methods
    from agop.methods.base import takes_layer
    from agop.pictures.class_names import class_names
    from agop.pictures.explained import Explainer
    from agop.pictures.explanation_folder import ExplanationFolder, common_folder
    from agop.statistic.agop import AGOP
    from agop.system.progress import track

    chosen = method or (["agop-weighted"] if prior else ["vanilla"])
    if layer is not None and not any(takes_layer(methods.get(name)) for name in chosen):
        raise InputError(f"--layer is for gradcam and gradcam++, not for {', '.join(chosen)}: leave it out")
    for name in chosen:
        methods.create(name)
    statistic = None if prior is None else AGOP.load(prior)
    how = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, how)
    files = _files(pictures)
    network = options.load_model_on_device(model, weights, classes, device)
    explainer = Explainer(
        network, chosen, how, statistic, target, layer, batch_size, names=class_names(statistic)
    )  # fmt: skip
    skipped: list[str] = []

    def skip(message: str) -> None:
        skipped.append(message)
        warn(f"skipped: {message}")

    folder = ExplanationFolder(out, explainer, common_folder(files))
    for explained in track(explainer.explained(files, skip), "explaining", total=len(files)):
        folder.add(explained)
    folder.finish(options.manifest_source(model, weights, prior), skipped)
    count = len(folder.entries)
    Console(soft_wrap=True, highlight=False, markup=False).print(
        f"wrote {count} image{'' if count == 1 else 's'}, maps.safetensors and manifest.json to {out}/"
    )


def _files(paths: list[Path]) -> list[Path]:
    """The pictures named, and those in the folders named."""
    from agop.pictures.folders import image_files

    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: give pictures, or folders of them")
        found = image_files(path) if path.is_dir() else [path]
        if not found:
            raise InputError(f"{path} holds no pictures: give another folder")
        files += found
    return files
