"""`agop app`: a web page that explains uploaded images with a model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.errors import InputError, warn

if TYPE_CHECKING:
    from agop.app.session import Session


def app(
    model: Annotated[
        str | None,
        typer.Argument(
            help="package.module:function, torchvision:NAME, timm:NAME, hf:FOLDER or FILE.pt2. Default: an example."
        ),
    ] = None,
    prior: options.Prior = None,
    weights: options.Weights = None,
    names: options.Names = None,
    num_classes: options.NumClasses = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    layer: options.Layer = None,
    device: options.Device = None,
    scale: options.Scale = "own",
    percentile: options.Percentile = 98.0,
    opacity: options.Opacity = 1.0,
    colours: options.Colours = "inferno",
    host: Annotated[
        str, typer.Option(help="Address to listen on. With another one than the default, other machines can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0: any free port.")] = 7860,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a web page: drop images, see which pixels the model relies on."""
    from agop.app import check_installed, example

    check_installed()
    from agop.app.guard import is_local
    from agop.app.server import serve
    from agop.pictures.colouring import Colouring

    colouring = Colouring(scale, percentile, opacity, colours)
    arguments: dict[str, Any] = {
        "weights": weights, "prior": prior, "num_classes": num_classes, "mean": mean, "std": std, "layer": layer,
        "size": size, "names": names, "gray": gray,
    }  # fmt: skip
    passed = [f"--{name}" for name, value in arguments.items() if value is not None and value is not False]
    if model is None and passed:
        raise InputError(
            f"{', '.join(passed).replace('_', '-')} without a model: pass a model, or no options for the example"
        )
    arguments = example.ARGUMENTS if model is None else {"model": model, **arguments}
    if not is_local(host):
        warn(f"everybody who can reach {host} can upload images to this page and see its model's results")
    examples = example.images() if model is None else []
    serve(partial(load_session, **arguments, device=device), examples, host, port, typer.echo, browse, colouring)


def load_session(
    model: str,
    weights: Path | None = None,
    prior: Path | None = None,
    names: Path | None = None,
    num_classes: int | None = None,
    size: str | None = None,
    mean: str | None = None,
    std: str | None = None,
    gray: bool = False,
    layer: str | None = None,
    device: str | None = None,
) -> Session:
    """Session with the model of the arguments, after a first pass through it."""
    from agop.app.model_files import check_no_download
    from agop.app.session import Session
    from agop.statistic.agop import AGOP

    check_no_download(model, weights)
    statistic = None if prior is None else AGOP.load(prior)
    preprocessing = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, preprocessing)
    network = options.load_model_on_device(model, weights, num_classes, device)
    return Session.start(
        network, preprocessing, statistic, layer, names, options.manifest_source(model, weights, prior)
    )
