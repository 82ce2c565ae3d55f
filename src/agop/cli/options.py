"""The options that commands share, and what they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.errors import InputError, warn

if TYPE_CHECKING:
    from torch import nn

    from agop.pictures import Preprocessing
    from agop.statistic import AGOP

Model = Annotated[
    str, typer.Argument(help="package.module:function, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER or FILE.pt2")
]
Weights = Annotated[Path | None, typer.Option(help="Weights for the model: safetensors, or a state dict.")]
Classes = Annotated[int | None, typer.Option(help="Classes of a library's model, if not its own number.")]
Size = Annotated[str, typer.Option(help="Input size, as 224 or HEIGHTxWIDTH; pictures are scaled and cut to it.")]
Mean = Annotated[
    str | None, typer.Option(help="Mean of the channels, as 0.5 or 0.5,0.5,0.5. A library's model: ImageNet's. Else 0.")
]
Std = Annotated[str | None, typer.Option(help="Standard deviation of the channels, likewise; else 1.")]
Gray = Annotated[bool, typer.Option("--gray", help="The model takes one channel.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Pictures that go through the model at once.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps … By default the GPU if there is one.")]

_LIBRARIES = ("torchvision:", "timm:", "hf:")


def preprocessing(model: str, size: str, mean: str | None, std: str | None, gray: bool) -> Preprocessing:
    """How pictures are brought into the model's form."""
    from agop.pictures import IMAGENET, Preprocessing

    known: dict[str, Any] = IMAGENET if model.startswith(_LIBRARIES) and not gray else {}
    height, _, width = size.lower().partition("x")
    try:
        sides = (int(height), int(width or height))
    except ValueError:
        raise InputError(f"size is {size!r}: give 224 or HEIGHTxWIDTH, for example 64x96") from None
    given = {name: _numbers(name, text) for name, text in (("mean", mean), ("std", std)) if text is not None}
    return Preprocessing(size=sides, gray=gray, **(known | given))


def warn_if_prepared_otherwise(prior: AGOP | None, how: Preprocessing) -> None:
    """Warn if the prior's pictures were brought into another form than these."""
    then = {} if prior is None else prior.provenance.get("data", {}).get("preprocessing") or {}
    now = json.loads(json.dumps(how.described()))
    different = [f"{name} {then[name]} then, {now[name]} now" for name in now if then and then.get(name) != now[name]]
    if different:
        warn(f"the prior was made with other preprocessing ({'; '.join(different)}): give the same options")


def placed_model(spec: str, weights: Path | None, classes: int | None, device: str | None) -> nn.Module:
    """The model a spec names, on its device."""
    import torch

    from agop.networks import load_model

    model = load_model(spec, weights, classes)
    if device is None:
        return model.to(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu")
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used here: {error}") from error


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {text!r}: give numbers with commas, for example 0.5,0.5,0.5") from None
