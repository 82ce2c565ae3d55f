"""Options that several commands share, and what they are turned into."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli.preparation import ASSUMED, report_preprocessing, warn_if_random
from agop.errors import InputError, warn

if TYPE_CHECKING:
    from torch import Tensor, nn

    from agop.pictures.preprocessing import Preprocessing
    from agop.statistic.agop import AGOP

Model = Annotated[
    str, typer.Argument(help="package.module:function, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER or FILE.pt2")
]
Weights = Annotated[Path | None, typer.Option(help="Weights of the model: safetensors, or a state dict.")]
Prior = Annotated[Path | None, typer.Option(help="AGOP file of the model, from `agop fit` or a training hook.")]
_MOST_REFERENCES = 200
References = Annotated[
    Path | None,
    typer.Option(
        help="Folder of other images, for example training images, for methods that start from them, such as agop. "
        f"At most {_MOST_REFERENCES} of them are read, evenly spaced. Default: those of the prior."
    ),
]
Layer = Annotated[str | None, typer.Option(help="Layer for gradcam and gradcam++, by name.")]
Contrast = Annotated[
    bool | None,
    typer.Option(
        "--contrast/--no-contrast",
        help="Gradients of the log-odds of the class, instead of its logit. Default: as in the prior, else the logit.",
    ),
]
NumClasses = Annotated[
    int | None, typer.Option(min=1, help="Number of classes of a library's model. Default: the library's number.")
]
Names = Annotated[
    Path | None,
    typer.Option(
        help="Text file with the names of the model's classes, one per line. "
        "Default: those of the prior, else the class folders in alphabetical order."
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="Input size, 224 or HEIGHTxWIDTH; images are scaled and cropped to it. "
        "Default: that of the prior or of a library's model, else 224."
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="Mean per channel, 0.5 or 0.5,0.5,0.5. Default: that of the prior or of a library's model, else 0."
    ),
]
Std = Annotated[
    str | None,
    typer.Option(help="Standard deviation per channel. Default: that of the prior or of a library's model, else 1."),
]
Gray = Annotated[bool, typer.Option("--gray", help="The model's input has one channel.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Images in the model at once. Default: depends on their size.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps … Default: the GPU if there is one.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files that agop didn't write.")]

# How maps are drawn: the fields of `agop.pictures.colouring.Colouring`.
_COLOURS_PANEL = "Colours of the maps"
Scale = Annotated[
    str,
    typer.Option(
        help="own: the brightest colour is each map's top value. common: a colour is a pixel's share of its map's sum.",
        rich_help_panel=_COLOURS_PANEL,
    ),
]
Percentile = Annotated[
    float,
    typer.Option(
        help="Clip each map: the pixels up to its top value hold this percentage of its sum. 100: no clipping.",
        rich_help_panel=_COLOURS_PANEL,
    ),
]
Opacity = Annotated[
    float, typer.Option(help="Opacity of the brightest colour over the image, 0 to 1.", rich_help_panel=_COLOURS_PANEL)
]
Colours = Annotated[str, typer.Option(help="inferno, viridis, jet or gray.", rich_help_panel=_COLOURS_PANEL)]

_LIBRARIES = ("torchvision:", "timm:", "hf:")


def preprocessing(
    model: str, size: str | None, mean: str | None, std: str | None, gray: bool, prior: AGOP | None = None
) -> Preprocessing:
    """How images become the model's input. Prints it, and warns about what is assumed.

    Options win. Defaults come from the prior's preprocessing, else the library of the model, else the prior's shape.
    """
    from agop.interop.models import preprocessing_of
    from agop.pictures.preprocessing import Preprocessing

    options: dict[str, Any] = {} if size is None else {"size": height_and_width(size), "resize": None}
    options |= {name: _numbers(name, text) for name, text in (("mean", mean), ("std", std)) if text is not None}
    recorded = _recorded(prior)
    if recorded:
        defaults = Preprocessing.from_dict(recorded)
        sources = dict.fromkeys(("size", "mean", "std"), "from the prior")
    elif model.startswith(_LIBRARIES):
        defaults = preprocessing_of(model, not {"size", "mean", "std"} <= options.keys())
        sources = dict.fromkeys(("size", "mean", "std"), f"from {model}")
    else:
        defaults = _from_shape(prior)
        sources = {"size": ASSUMED if prior is None else "from the prior", "mean": ASSUMED, "std": ASSUMED}
    if (gray or (prior is not None and len(prior.diagonal) == 1)) and not defaults.gray:
        # A mean or std of three channels doesn't fit. One number stays.
        one_channel: dict[str, Any] = {"mean": (0.0,), "std": (1.0,)}
        replaced = {name: value for name, value in one_channel.items() if len(getattr(defaults, name)) > 1}
        defaults = replace(defaults, gray=True, **replaced)
        sources |= dict.fromkeys(replaced, ASSUMED)
    result = replace(defaults, **options)
    report_preprocessing(result, sources | {name: "from options" for name in options if name in sources}, prior)
    return result


def _recorded(prior: AGOP | None) -> dict[str, Any]:
    """The preprocessing that an AGOP file records, as JSON values; empty if it records none."""
    return {} if prior is None else prior.provenance.data.preprocessing


def _from_shape(prior: AGOP | None) -> Preprocessing:
    """Size and channels of the prior, which is all that a training hook records."""
    from agop.pictures.preprocessing import Preprocessing

    if prior is None:
        return Preprocessing()
    channels, height, width = prior.diagonal.shape
    return Preprocessing((height, width), gray=channels == 1)


def warn_if_preprocessing_differs(prior: AGOP | None, preprocessing: Preprocessing) -> None:
    """Warn if the prior was made with other preprocessing."""
    from agop.pictures.preprocessing import OMITTED

    recorded = _recorded(prior)
    if not recorded:
        return
    before, now = OMITTED | recorded, OMITTED | json.loads(json.dumps(preprocessing.to_dict()))
    different = [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]
    if different:
        warn(f"the prior was made with other preprocessing ({'; '.join(different)}): pass the same options")


def output_of(contrast: bool | None, prior: AGOP | None) -> str:
    """What gradients are of, from --contrast; by default as in the prior."""
    from agop.model.targets import CONTRAST, PREDICTED

    if contrast is None:
        return PREDICTED if prior is None else prior.provenance.output
    return CONTRAST if contrast else PREDICTED


def load_references(folder: Path | None, preprocessing: Preprocessing) -> Tensor | None:
    """The reference images (M,C,H,W) of --references, prepared like all images."""
    from agop.pictures.folders import load_some

    return None if folder is None else load_some(folder, preprocessing, _MOST_REFERENCES)


def load_model_on_device(spec: str, weights: Path | None, num_classes: int | None, device: str | None) -> nn.Module:
    """The model of a spec, on the device; default: the GPU if there is one."""
    import torch

    from agop.networks import load_model

    model = load_model(spec, weights, num_classes)
    if weights is None and not spec.endswith(".pt2") and (num_classes is not None or not spec.startswith(_LIBRARIES)):
        warn_if_random(spec, model, load_model(spec, None, num_classes))
    if device is None:
        return model.to(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu")
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"can't use device {device!r}: {error}") from error


def manifest_source(model: str, weights: Path | None, prior: Path | None) -> dict[str, str | None]:
    """Where a model came from, for a manifest."""
    files = {"weights": weights, "prior": prior}
    return {"model": model} | {name: None if path is None else str(path) for name, path in files.items()}


def check_out(path: Path, inputs: Iterable[Path | None] = (), *, force: bool = False) -> None:
    """Raise if no AGOP file can be written to the path, or if it would replace something else, before any work."""
    from agop.statistic.agop_file import is_agop_file
    from agop.system.files import check_overwrites

    if path.is_dir():
        raise InputError(f"out {path} is a folder: give a file, {path / 'agop.safetensors'}")
    check_writable(path)
    check_overwrites([path], inputs, is_agop_file, force=force)


def check_writable(path: Path) -> None:
    """Raise if no file can be written to the path."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"can't write out {path}: {folder} isn't a writable folder")


def height_and_width(text: str) -> tuple[int, int]:
    """Height and width from "HEIGHTxWIDTH", or from one number for both."""
    sides = re.fullmatch(r"(\d{1,5})(?:[x×](\d{1,5}))?", text.strip().lower())
    if sides is None:
        raise InputError(f"size is {text!r}: pass 224 or HEIGHTxWIDTH, for example 64x96")
    return int(sides[1]), int(sides[2] or sides[1])


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {text!r}: pass numbers separated by commas, for example 0.5,0.5,0.5") from None
