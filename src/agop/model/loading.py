"""load_model(): a model from a spec such as torchvision:resnet18 or package.module:function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agop.errors import AGOPError, InputError, MissingExtraError, ModelError
from agop.model.exported import load_exported
from agop.model.forms import FORMS
from agop.model.user_code import load_user_object
from agop.model.weights import check_complete, load_weights, state_dict
from agop.registry import unknown_name_error


def load_model(spec: str, weights: str | Path | None = None, num_classes: int | None = None) -> nn.Module:
    """Load the model that a spec names, in one of FORMS, with the weights of a file.

    Without a file, a library's model comes with its own pretrained weights. `num_classes` sets the size of a library
    model's last layer.
    """
    path = None if weights is None else Path(weights)
    if spec.startswith("hf:") and path is not None:
        return _hugging_face_with_weights(spec.removeprefix("hf:"), path, num_classes)
    model = _build(spec, path is None, num_classes)
    if path is not None:
        load_weights(model, path)
    return model


def _build(spec: str, pretrained: bool, num_classes: int | None) -> nn.Module:
    if spec.endswith(".pt2"):
        return load_exported(Path(spec))
    library, _, name = spec.partition(":")
    if not library or not name:
        raise ModelError(f"{spec!r} does not name a model: give {', '.join(FORMS)}")
    if library not in _LIBRARIES:
        if num_classes is not None:
            raise InputError("--num-classes is for a library's models: set the number of classes in your function")
        return _user_model(spec)
    try:
        model: nn.Module = _LIBRARIES[library](name, pretrained, num_classes)
    except AGOPError:
        raise
    except Exception as error:  # each library raises its own
        hint = "; if its weights can't be downloaded, give --weights FILE" if pretrained else ""
        raise ModelError(f"{spec} can't be loaded: {type(error).__name__}: {error}{hint}") from error
    return model


def _user_model(spec: str) -> nn.Module:
    """The user's module, or the return value of the user's function."""
    value = load_user_object(spec, "model", callable)
    try:
        model = value if isinstance(value, nn.Module) else value()
    except (Exception, SystemExit) as error:  # the user's own code
        raise ModelError(f"{spec} raised {type(error).__name__}: {error}; it is called without arguments") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}: it should return a torch.nn.Module")
    return model


def import_library(library: str) -> Any:
    """Import torchvision, timm or transformers. Raises with the command that installs it."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name == library and library != "torchvision":  # which has no extra
            raise MissingExtraError(f"a {library} model", library, beside=_this_torch()) from error
        raise ModelError(f"a {library} model needs {error.name}: pip install {error.name} {_this_torch()}") from error
    except Exception as error:  # torchvision for another torch raises RuntimeError
        raise ModelError(
            f"{library} is installed but can't be imported ({type(error).__name__}: {error}): "
            f"pip install {library} {_this_torch()}, from the index that your torch came from"
        ) from error


def _this_torch() -> str:
    """The installed torch, for a pip command: without it, torchvision replaces torch by the latest CUDA build."""
    return f"torch=={torch.__version__.partition('+')[0]}"


def _torchvision(name: str, pretrained: bool, num_classes: int | None) -> Any:
    models = import_library("torchvision").models
    if name.lower() not in models.list_models():
        raise unknown_name_error("torchvision model", name, models.list_models())
    return models.get_model(name, weights="DEFAULT" if pretrained else None, **_without_none(num_classes=num_classes))


def _timm(name: str, pretrained: bool, num_classes: int | None) -> Any:
    timm = import_library("timm")
    return timm.create_model(name, pretrained=pretrained, **_without_none(num_classes=num_classes))


def _hugging_face(name: str, _: bool, num_classes: int | None) -> Any:
    classifier = import_library("transformers").AutoModelForImageClassification
    return classifier.from_pretrained(name, **_without_none(num_labels=num_classes))


def _hugging_face_with_weights(name: str, weights: Path, num_classes: int | None) -> nn.Module:
    """Through the library, which maps older names of the same weights."""
    transformers = import_library("transformers")
    config = transformers.AutoConfig.from_pretrained(name, **_without_none(num_labels=num_classes))
    untrained = transformers.AutoModelForImageClassification.from_config(config)
    model: nn.Module
    model, report = type(untrained).from_pretrained(
        None, config=config, state_dict=state_dict(weights, untrained), output_loading_info=True
    )
    check_complete(weights, sorted(report["missing_keys"]), sorted(report["unexpected_keys"]))
    return model


def _without_none(**options: int | None) -> dict[str, int]:
    return {name: value for name, value in options.items() if value is not None}


_LIBRARIES: dict[str, Callable[[str, bool, int | None], Any]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _hugging_face,
}
