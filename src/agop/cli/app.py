"""`agop app`: a page on which one explains pictures of one's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agop.cli import options
from agop.errors import InputError, warn

if TYPE_CHECKING:
    from agop.app.fields import Fields
    from agop.app.session import Loaded


def app(
    model: Annotated[
        str | None,
        typer.Argument(
            help="package.module:function, torchvision:NAME, timm:NAME, hf:FOLDER or FILE.pt2; by default an example."
        ),
    ] = None,
    prior: Annotated[Path | None, typer.Option(help="The model's AGOP file, from `agop fit` or a hook.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights for the model: a safetensors file.")] = None,
    names: Annotated[Path | None, typer.Option(help="A text file with the names of the classes, one a line.")] = None,
    classes: options.Classes = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    layer: Annotated[str | None, typer.Option(help="The layer for gradcam and gradcam++, by name.")] = None,
    device: options.Device = None,
    host: Annotated[str, typer.Option(help="The address to listen on; another one lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 7860,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Open a page on which one drops pictures and sees what the model looks at."""
    from agop.app import check_installed, example

    check_installed()
    from agop.app.fields import Fields
    from agop.app.guard import is_local
    from agop.app.server import serve

    given = {
        "weights": weights,
        "prior": prior,
        "classes": classes,
        "mean": mean,
        "std": std,
        "layer": layer,
        "size": size,
    }
    texts = {name: str(value) for name, value in (given | {"names": names}).items() if value is not None}
    if model is None and (texts or gray):
        told = ", ".join(f"--{name}" for name in [*texts, *["gray"] * gray])
        raise InputError(f"{told} without a model: name one, or leave all out for the example")
    fields = example.fields() if model is None else Fields(model, gray=gray, **texts)
    if not is_local(host):
        warn(
            f"everybody who can reach {host} can use this page and send it pictures; "
            "the model and its files stay those of the command line"
        )
    serve(partial(load, device=device), fields, host, port, typer.echo, browse)


def load(fields: Fields, device: str | None = None) -> Loaded:
    """The model that the fields name, tried out."""
    from agop.app.fields import check, tensors_file
    from agop.app.session import Loaded
    from agop.statistic.agop import AGOP

    check(fields)
    path = tensors_file("the AGOP file", fields.prior, "`agop fit`")
    prior = None if path is None else AGOP.load(path)
    size, mean, std = (text or None for text in (fields.size, fields.mean, fields.std))
    how = options.preprocessing(fields.model, size, mean, std, fields.gray, prior)
    options.warn_if_preprocessing_differs(prior, how)
    weights = tensors_file("weights", fields.weights, "safetensors")
    model = options.load_model_on_device(fields.model, weights, fields.class_count(), device)
    return Loaded.tried(fields, model, how, prior)
