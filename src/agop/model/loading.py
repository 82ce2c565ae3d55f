"""A user's own model, from the text that names it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agop.errors import InputError, ModelError
from agop.model.exported import load_exported
from agop.model.weights import check_complete, load_weights, state_dict
from agop.registry import unknown_name_error

FORMS = {
    "package.module:function": "what the function returns; the current folder is searched, too",
    "torchvision:NAME": "a torchvision model, for example torchvision:resnet18",
    "timm:NAME": "a timm model",
    "hf:NAME_OR_FOLDER": "a Hugging Face image classifier",
    "FILE.pt2": "a model saved with torch.export.save",
}


def load_model(spec: str, weights: str | Path | None = None, classes: int | None = None) -> nn.Module:
    """The model a spec names, in one of FORMS, with the weights of a file if one is given.

    Without a file, the libraries' models come with their own pretrained weights. `classes` sets the size
    of the last layer of a library's model.
    """
    path = None if weights is None else Path(weights)
    if spec.startswith("hf:") and path is not None:
        return _hugging_face_with(spec.removeprefix("hf:"), path, classes)
    model = _built(spec, path is None, classes)
    if path is not None:
        load_weights(model, path)
    return model


def _built(spec: str, pretrained: bool, classes: int | None) -> nn.Module:
    if spec.endswith(".pt2"):
        return load_exported(Path(spec))
    library, _, name = spec.partition(":")
    if not library or not name:
        raise ModelError(f"{spec!r} does not name a model: give {', '.join(FORMS)}")
    if library not in _LIBRARIES:
        if classes is not None:
            raise InputError("--classes is for the models of a library: let your function make the right number")
        return _own(library, name)
    try:
        model: nn.Module = _LIBRARIES[library](name, pretrained, classes)
    except ModelError:
        raise
    except Exception as error:  # each library has its own
        hint = "; where weights cannot be downloaded, give --weights FILE" if pretrained else ""
        raise ModelError(f"{spec} could not be made: {type(error).__name__}: {error}{hint}") from error
    return model


def _own(module: str, name: str) -> nn.Module:
    """What the user's function returns, or the user's module itself."""
    found: Any = import_user_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            public = [known for known, value in vars(found).items() if callable(value) and not known.startswith("_")]
            raise unknown_name_error(f"function of {module}", part, public)
        found = getattr(found, part)
    try:
        model = found if isinstance(found, nn.Module) else found()
    except Exception as error:  # the user's own code
        raise ModelError(
            f"{module}:{name} raised {type(error).__name__}: {error}; it is called without arguments"
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{module}:{name} gave a {type(model).__name__}: it should return a torch.nn.Module")
    return model


def import_library(library: str) -> Any:
    """A library that a spec needs; an error that says how to get it."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ModelError(f"{library} cannot be used here: pip install {error.name}") from error
    except Exception as error:  # torchvision for another torch raises RuntimeError
        raise ModelError(
            f"{library} is installed but cannot be imported ({type(error).__name__}: {error}): "
            f"install the builds that match torch {torch.__version__}"
        ) from error


def _torchvision(name: str, pretrained: bool, classes: int | None) -> Any:
    models = import_library("torchvision").models
    return models.get_model(name, weights="DEFAULT" if pretrained else None, **_given(num_classes=classes))


def _timm(name: str, pretrained: bool, classes: int | None) -> Any:
    timm = import_library("timm")
    return timm.create_model(name, pretrained=pretrained, **_given(num_classes=classes))


def _hugging_face(name: str, _: bool, classes: int | None) -> Any:
    classifier = import_library("transformers").AutoModelForImageClassification
    return classifier.from_pretrained(name, **_given(num_labels=classes))


def _hugging_face_with(name: str, weights: Path, classes: int | None) -> nn.Module:
    """Through the library, which knows older names of the same weights."""
    transformers = import_library("transformers")
    config = transformers.AutoConfig.from_pretrained(name, **_given(num_labels=classes))
    classifier = type(transformers.AutoModelForImageClassification.from_config(config))
    model: nn.Module
    model, told = classifier.from_pretrained(
        None, config=config, state_dict=state_dict(weights), output_loading_info=True
    )
    check_complete(weights, sorted(told["missing_keys"]), sorted(told["unexpected_keys"]))
    return model


def _given(**options: int | None) -> dict[str, int]:
    return {name: value for name, value in options.items() if value is not None}


_LIBRARIES: dict[str, Callable[[str, bool, int | None], Any]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _hugging_face,
}


def import_user_module(name: str) -> Any:
    """The module; the current folder is searched, too. An error that says why if it cannot be had."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"leave out the .py: {name[:-3]}:…" if name.endswith(".py") else "run this from its folder"
            raise ModelError(f"there is no module {name} here: {hint}") from error
        raise ModelError(f"{name} needs {error.name}, which is not installed") from error
    except Exception as error:  # the user's own code
        raise ModelError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
