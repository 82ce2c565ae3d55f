"""The options that commands share, and what they stand for."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.errors import InputError, warn

if TYPE_CHECKING:
    from torch import nn

    from agop.pictures.preprocessing import Preprocessing
    from agop.statistic.agop import AGOP

Model = Annotated[
    str, typer.Argument(help="package.module:function, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER or FILE.pt2")
]
Weights = Annotated[Path | None, typer.Option(help="Weights for the model: safetensors, or a state dict.")]
Classes = Annotated[int | None, typer.Option(help="Classes of a library's model, if not its own number.")]
Size = Annotated[
    str | None,
    typer.Option(
        help="Input size, as 224 or HEIGHTxWIDTH; pictures are scaled and cut to it. "
        "A library's model: its own. Else 224."
    ),
]
Mean = Annotated[
    str | None, typer.Option(help="Mean of the channels, as 0.5 or 0.5,0.5,0.5. A library's model: its own. Else 0.")
]
Std = Annotated[str | None, typer.Option(help="Standard deviation of the channels, likewise; else 1.")]
Prior = Annotated[Path | None, typer.Option(help="AGOP file of the model, from `agop fit` or a training hook.")]
Layer = Annotated[str | None, typer.Option(help="Layer for gradcam and gradcam++, by name.")]
Gray = Annotated[bool, typer.Option("--gray", help="The model takes one channel.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Pictures in the model at once; by default what suits their size.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps … By default the GPU if there is one.")]

_LIBRARIES = ("torchvision:", "timm:", "hf:")


def preprocessing(
    model: str, size: str | None, mean: str | None, std: str | None, gray: bool, prior: AGOP | None = None
) -> Preprocessing:
    """How pictures are brought into the model's form: as the options say, else as for the prior, else as a library says
    of its model, else at the size of the prior.
    """
    from agop.interop.models import preprocessing_of

    given: dict[str, Any] = {} if size is None else {"size": _sides(size), "resize": None}
    given |= {name: _numbers(name, text) for name, text in (("mean", mean), ("std", std)) if text is not None}
    told = not {"size", "mean", "std"} <= given.keys()
    known = _of_prior(prior)
    if known is None:
        known = preprocessing_of(model, told) if model.startswith(_LIBRARIES) else _of_shape(prior, given)
    plain: dict[str, Any] = {"gray": True, "mean": (0.0,), "std": (1.0,)} if gray and not known.gray else {}
    return replace(known, **(plain | given))


def _of_prior(prior: AGOP | None) -> Preprocessing | None:
    """How the pictures of a prior were brought into the model's form, if it tells."""
    from agop.pictures.preprocessing import Preprocessing

    told = None if prior is None else prior.provenance.get("data", {}).get("preprocessing")
    if not told:
        return None
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Preprocessing(**fields)


def _of_shape(prior: AGOP | None, given: Collection[str]) -> Preprocessing:
    """The size and channels of a prior, of which a hook's file tells no more: warns about mean and std if not given."""
    from agop.pictures.preprocessing import Preprocessing

    if prior is None:
        return Preprocessing()
    channels, height, width = prior.diagonal.shape
    taken = [] if "size" in given else [f"{height}×{width}"]
    missing = {name: value for name, value in (("mean", 0), ("std", 1)) if name not in given}
    if missing:
        taken += [f"{name} {value}" for name, value in missing.items()]
        wanted = " and ".join(f"--{name}" for name in missing)
        warn(
            f"the prior does not say how its pictures were prepared (taken here: {', '.join(taken)}): "
            f"give {wanted} as in training"
        )
    return Preprocessing((height, width), gray=channels == 1)


def warn_if_preprocessing_differs(prior: AGOP | None, how: Preprocessing) -> None:
    """Warn if the prior's pictures were brought into another form than these."""
    from agop.pictures.preprocessing import UNSAID

    made = {} if prior is None else prior.provenance.get("data", {}).get("preprocessing") or {}
    then, now = UNSAID | made, UNSAID | json.loads(json.dumps(how.to_dict()))
    different = [f"{name} {then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name]]
    if made and different:
        warn(f"the prior was made with other preprocessing ({'; '.join(different)}): give the same options")


def load_model_on_device(spec: str, weights: Path | None, classes: int | None, device: str | None) -> nn.Module:
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


def manifest_source(model: str, weights: Path | None, prior: Path | None) -> dict[str, str | None]:
    """Where a model came from, for a manifest."""
    files = {"weights": weights, "prior": prior}
    return {"model": model} | {name: None if path is None else str(path) for name, path in files.items()}


def check_out(path: Path) -> None:
    """Raise, before the work, if no file can be written there."""
    if path.is_dir():
        raise InputError(f"out {path} is a folder: give a file, {path / 'agop.safetensors'}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"out {path} cannot be written: {above} is no folder, or may not be written to")


def _sides(size: str) -> tuple[int, int]:
    """Height and width."""
    height, _, width = size.lower().partition("x")
    try:
        return int(height), int(width or height)
    except ValueError:
        raise InputError(f"size is {size!r}: give 224 or HEIGHTxWIDTH, for example 64x96") from None


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {text!r}: give numbers with commas, for example 0.5,0.5,0.5") from None
