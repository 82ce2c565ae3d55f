"""Options that several commands share, and what they are turned into."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from agop.cli.printing import Command, plain_console
from agop.errors import InputError, warn
from agop.processes import torchrun_rank

if TYPE_CHECKING:
    from torch import Tensor, nn

    from agop.images.overlays import Colouring
    from agop.images.preprocessing import Preprocessing
    from agop.prior.agop import AGOP

# Text in an annotation is the help of an argument or option: see `command`.
Model = Annotated[str, "package.module:function, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER or FILE.pt2"]
Prior = Annotated[Path | None, "AGOP file of the model, from `agop fit` or a training hook."]
_MOST_REFERENCES = 200
References = Annotated[
    Path | None,
    "Folder of other images, for example training images, for methods that start from them, such as agop. "
    f"At most {_MOST_REFERENCES} of them are read, evenly spaced. Default: those of the prior.",
]
_METHOD = "Method from `agop list`, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE,OPTION=VALUE sets options."
_DEFAULT_METHOD = "Default: agop, or vanilla for a model for which agop needs --prior."
Methods = Annotated[list[str] | None, f"{_METHOD} {_DEFAULT_METHOD}"]
MethodsOrAll = Annotated[list[str] | None, f"{_METHOD} all: every method. {_DEFAULT_METHOD}"]
Layer = Annotated[str | None, "Layer for gradcam and gradcam++, by name."]
Output = Annotated[
    str | None, "What is explained: logit, log_odds or probability of the class. Default: as in the prior, else logit."
]
Names = Annotated[
    Path | None,
    "Text file with the names of the model's classes, one per line. "
    "Default: those of the prior, else the class folders in alphabetical order.",
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Images in the model at once. Default: by their size.")]
_FILES, _PRIOR = "Overwrite existing files, and write into a folder with other files.", "Use a prior of another model."
Force = Annotated[bool, _FILES]
ForcePrior = Annotated[bool, _PRIOR]
ForceAll = Annotated[bool, f"{_FILES} {_PRIOR}"]

_DEFAULT = "Default: that of the prior or of a library's model"
_LIBRARIES = ("torchvision:", "timm:", "hf:")
_ASSUMED = "assumed"


def is_own(spec: str) -> bool:
    """True for package.module:function, a function of the user."""
    return not spec.endswith(".pt2") and not spec.startswith(_LIBRARIES)


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model and of the images that it gets. `command` adds them to a command."""

    weights: Annotated[Path | None, "Weights of the model: safetensors, or a state dict."] = None
    num_classes: Annotated[int | None, typer.Option(min=1, help="Classes of a library model. Default: its own.")] = None
    size: Annotated[str | None, f"Input size, 224 or HEIGHTxWIDTH. {_DEFAULT}, else 224."] = None
    resize: Annotated[
        int | None,
        typer.Option(
            min=1, help="Shorter side before the crop, for example 256. Default: as --size, or as the prior says."
        ),
    ] = None
    mean: Annotated[str | None, f"Mean per channel, 0.5 or 0.5,0.5,0.5. {_DEFAULT}, else 0."] = None
    std: Annotated[str | None, f"Standard deviation per channel. {_DEFAULT}, else 1."] = None
    gray: Annotated[bool, "The model's input has one channel."] = False
    device: Annotated[str | None, "cpu, cuda, cuda:1, mps … Default: the GPU, if any."] = None

    def open(self, spec: str, prior: Path | None, force: bool) -> tuple[nn.Module, Preprocessing, AGOP | None]:
        """The model, how images become its input, and its prior.

        Raises PriorError, with `force` warns, if the prior comes from another architecture.
        """
        from agop.errors import PriorError
        from agop.model.state import fingerprint
        from agop.prior.agop import AGOP

        statistic = None if prior is None else AGOP.load(prior)
        model = self.load(spec, statistic)
        if statistic is not None:
            recorded = statistic.provenance.model
            if recorded and recorded["architecture"] != fingerprint(model)["architecture"] and not force:
                raise PriorError(
                    f"{prior} comes from another model (its parameters have other names or shapes): make a prior of "
                    f"{spec} with `agop fit`, or go on with --force"
                )
            statistic.check(model, statistic.diagonal[None])  # warns, also for methods that don't use the prior
        return model, self.prepare(spec, statistic), statistic

    def prepare(self, model: str, statistic: AGOP | None = None) -> Preprocessing:
        """How images become the model's input. Prints it, and warns about what is assumed.

        Options win. Defaults come from the prior's preprocessing, else the model's library, else the prior's shape.
        """
        from agop.images.preprocessing import Preprocessing
        from agop.integrations.models import preprocessing_of

        recorded = {} if statistic is None else statistic.provenance.data.preprocessing
        options: dict[str, Any] = {} if self.size is None else {"size": _height_and_width(self.size), "resize": None}
        options |= {} if self.resize is None else {"resize": self.resize}
        options |= {
            name: _numbers(name, text) for name, text in (("mean", self.mean), ("std", self.std)) if text is not None
        }
        if recorded:
            defaults, source = Preprocessing.from_dict(recorded), "from the prior"
        elif model.startswith(_LIBRARIES):
            defaults = preprocessing_of(model, not {"size", "mean", "std"} <= options.keys())
            source = f"from {model}"
        else:
            defaults, source = Preprocessing(), _ASSUMED
        sources = dict.fromkeys(("size", "mean", "std"), source)
        if source == _ASSUMED and statistic is not None:  # a training hook records no more than the shape
            channels, height, width = statistic.diagonal.shape
            defaults, sources["size"] = Preprocessing((height, width), gray=channels == 1), "from the prior"
        if (self.gray or (statistic is not None and len(statistic.diagonal) == 1)) and not defaults.gray:
            # A mean or std of three channels doesn't fit. One number stays.
            one_channel: dict[str, Any] = {"mean": (0.0,), "std": (1.0,)}
            replaced = {name: value for name, value in one_channel.items() if len(getattr(defaults, name)) > 1}
            defaults = replace(defaults, gray=True, **replaced)
            sources |= dict.fromkeys(replaced, _ASSUMED)
        result = replace(defaults, **options)
        if torchrun_rank()[0] == 0:
            sources |= {name: "from options" for name in options if name in sources}
            _report(result, sources, recorded, statistic is not None)
        return result

    def load(self, spec: str, prior: AGOP | None = None) -> nn.Module:
        """The model of a spec, on the device; default: the GPU if there is one. A prior tells whether it's trained."""
        import torch

        from agop.model.load import load_model

        model = load_model(spec, self.weights, self.num_classes)
        own = is_own(spec) or self.num_classes is not None
        # A batch norm that has seen images was trained.
        trained = any(name.endswith("running_mean") and bool(each.any()) for name, each in model.named_buffers())
        if own and not trained and self.weights is None and prior is None and torchrun_rank()[0] == 0:
            warn(f"{spec} has random weights, unless it loads trained ones itself: pass them with --weights")
        if self.device is None:
            return model.to(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu")
        try:
            return model.to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"can't use device {self.device!r}: {error}") from error

    def manifest_source(self, model: str, prior: Path | None) -> dict[str, str | None]:
        """Where a model came from, for a manifest."""
        files = {"weights": self.weights, "prior": prior}
        return {"model": model} | {name: None if path is None else str(path) for name, path in files.items()}


@dataclass(frozen=True)
class DrawingOptions:
    """How maps are drawn: the fields of `agop.images.overlays.Colouring`."""

    scale: Annotated[
        str, "own: the brightest colour is each map's top value. common: a colour is a pixel's share of its map's sum."
    ] = "own"
    percentile: Annotated[
        float, "Clip each map: the pixels up to its top value hold this percentage of its sum. 100: no clipping."
    ] = 98.0
    opacity: Annotated[float, "Opacity of the brightest colour over the image, 0 to 1."] = 1.0
    colours: Annotated[str, "inferno, viridis, jet or gray."] = "inferno"

    def colouring(self) -> Colouring:
        """The checked options."""
        from agop.images.overlays import Colouring

        return Colouring(**asdict(self))


def command(function: Command) -> Command:
    """Decorate a command: its parameters become arguments, if they have no default, and options.

    An annotation has a help text or an object of typer. A bool that is False by default has no --no-NAME. The fields of
    a dataclass become options.
    """
    own = signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    options: list[Parameter] = []
    for name, each in own.items():
        options += signature(groups[name], eval_str=True).parameters.values() if name in groups else [each]

    @wraps(function)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    run.__signature__ = Signature(list(map(_for_typer, options)))  # type: ignore[attr-defined]  # read by typer
    return run


def _for_typer(parameter: Parameter) -> Parameter:
    kind, info = get_args(parameter.annotation)
    if isinstance(info, str) and parameter.default is Parameter.empty:
        info = typer.Argument(help=info)
    elif isinstance(info, str):
        flags = [f"--{parameter.name.replace('_', '-')}"] if parameter.default is False else []
        info = typer.Option(*flags, help=info)
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


def _report(
    preprocessing: Preprocessing, sources: Mapping[str, str], recorded: Mapping[str, Any], has_prior: bool
) -> None:
    """Print how images are prepared, and warn about what is assumed or differs from what the prior records.

    `sources` say where size, mean and std come from.
    """
    from agop.images.preprocessing import OMITTED
    from agop.prior.show import preprocessing_text

    fields = preprocessing.to_dict()
    parts: dict[str, list[str]] = {}
    for name, source in sources.items():
        parts.setdefault(source, []).append(name)
    words = [f"{', '.join(names)} {source}" for source, names in parts.items()] if len(parts) > 1 else [*parts]
    plain_console().print(f"images: {preprocessing_text(fields)} ({'; '.join(words)})")
    if assumed := parts.get(_ASSUMED):
        reason = "the prior doesn't record its preprocessing" if has_prior else "nothing specifies the preprocessing"
        values = ", ".join(f"{name} {'×'.join(f'{value:g}' for value in fields[name])}" for name in assumed)
        *others, last = (f"--{name}" for name in assumed)
        warn(f"{reason} (assuming {values}): pass {', '.join(others)}{' and ' if others else ''}{last} as in training")
    before, now = OMITTED | dict(recorded), OMITTED | json.loads(json.dumps(fields))
    different = [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]
    if recorded and different:
        warn(f"the prior was made with other preprocessing ({'; '.join(different)}): pass the same options")


def output_of(output: str | None, prior: AGOP | None) -> str:
    """What gradients are of, from --output; by default as in the prior."""
    from agop.model.outputs import output_for

    return output_for(output or (prior.provenance.output if prior else "logit")).name


def load_references(folder: Path | None, preprocessing: Preprocessing) -> Tensor | None:
    """The reference images (M,C,H,W) of --references, prepared like all images."""
    from agop.images.files import load_some

    return None if folder is None else load_some(folder, preprocessing, _MOST_REFERENCES)


def check_out(path: Path, inputs: Iterable[Path | None] = (), *, force: bool = False) -> None:
    """Raise if no AGOP file can be written to the path, or if it would replace something else, before any work."""
    from agop.io import check_overwrites
    from agop.prior.agop import is_agop_file

    if path.is_dir():
        raise InputError(f"out {path} is a folder: give a file, {path / 'agop.safetensors'}")
    check_writable(path)
    check_overwrites([path], inputs, own=is_agop_file(path), force=force)


def check_writable(path: Path) -> None:
    """Raise if no file can be written to the path."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"can't write out {path}: {folder} isn't a writable folder")


def _height_and_width(text: str) -> tuple[int, int]:
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
