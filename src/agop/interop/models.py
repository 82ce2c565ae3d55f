"""Models of timm, torchvision and transformers with what they say of themselves: no size, mean or layer to give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError, ModelError, warn
from agop.interop.preprocessing import (
    processor_preprocessing,
    timm_preprocessing,
    torchvision_preprocessing,
    transformers_preprocessing,
)
from agop.model.layers import layer_name
from agop.model.loading import import_library
from agop.model.probe import check_model
from agop.pictures.preprocessing import IMAGENET, Preprocessing


@dataclass(frozen=True)
class Described:
    """A model and how it wants its pictures."""

    model: nn.Module
    preprocessing: Preprocessing

    @property
    def layer(self) -> str:
        """The layer that GradCAM weighs if none is given, by name, from one pass over noise."""
        channels = 1 if self.preprocessing.gray else 3
        noise = torch.randn(1, channels, *self.preprocessing.size, generator=torch.Generator().manual_seed(0))
        return layer_name(self.model, noise)

    def images(self, paths: Iterable[str | os.PathLike[str]]) -> Tensor:
        """The model's input (N,C,H,W), from picture files."""
        how = self.preprocessing
        found = [how.tensor(how.picture(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
        if not found:
            raise InputError("no picture was given: give at least one path")
        return torch.stack(found)


def from_timm(model: nn.Module) -> Described:
    """A timm model with the preprocessing of its `pretrained_cfg`; one made for another size gets that size."""
    check_model(model)
    said = getattr(model, "pretrained_cfg", None)
    if said is None:
        raise ModelError(f"{type(model).__name__} has no pretrained_cfg: give a model of timm.create_model")
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return Described(model, timm_preprocessing(_fields(said), size))


def from_torchvision(model: nn.Module, weights: Any = None) -> Described:
    """A torchvision model with the preprocessing of its weights: ResNet18_Weights.DEFAULT, for example.

    A model does not know its weights; without them it gets ImageNet's mean and std, and its own size if it says one.
    """
    check_model(model)
    if weights is None:
        return Described(model, _imagenet(getattr(model, "image_size", None)))
    if isinstance(weights, str):
        weights = import_library("torchvision").models.get_weight(weights)
    return Described(model, torchvision_preprocessing(weights.transforms()))


def from_transformers(model: nn.Module, processor: Any = None) -> Described:
    """A Hugging Face image classifier with the preprocessing of its image processor.

    Without `processor` (one, or its fields as a mapping) it is looked for where the model came from. It is tried on a
    picture: one that prepares that in a way that we do not know is a ModelError.
    """
    check_model(model)
    if isinstance(processor, Mapping):
        return Described(model, transformers_preprocessing(processor))
    if processor is not None:
        return Described(model, processor_preprocessing(processor))
    config = getattr(model, "config", None)
    name = getattr(config, "name_or_path", "")
    said = _processor_of(name) if name else None
    if said is None:
        said = _imagenet(getattr(config, "image_size", None))
        warn(
            f"the model does not say how its pictures are prepared: {_told(said)}; pass processor= if it was otherwise"
        )
    return Described(model, said)


def preprocessing_of(spec: str, warned: bool = True) -> Preprocessing:
    """What a library says of a model by its spec, torchvision:NAME, timm:NAME or hf:NAME; else ImageNet's.

    A model that is not there is told when it is loaded, not here. `warned`: about a Hugging Face model without a word;
    one that prepares its pictures in a way that we do not know is a ModelError then.
    """
    library, _, name = spec.partition(":")
    import_library(_MODULES[library])
    try:
        said = _BY_NAME[library](name)
        if said is not None or library != "hf":
            return said or _imagenet(None)
        config = import_library("transformers").AutoConfig.from_pretrained(name)
    except Exception as error:  # each library has its own
        if warned and isinstance(error, ModelError):
            raise
        return _imagenet(None)
    found = _imagenet(getattr(config, "image_size", None))
    if warned:
        warn(f"{name} holds no preprocessor_config.json: {_told(found)}; say --size, --mean and --std as in training")
    return found


def _timm_of(name: str) -> Preprocessing | None:
    timm = import_library("timm")
    # A name with a place before it, as in hf-hub:NAME, stands in no list.
    said = timm.create_model(name).pretrained_cfg if ":" in name else timm.get_pretrained_cfg(name)
    return None if said is None else timm_preprocessing(_fields(said))


def _torchvision_of(name: str) -> Preprocessing | None:
    return torchvision_preprocessing(import_library("torchvision").models.get_model_weights(name).DEFAULT.transforms())


def _processor_of(name: str) -> Preprocessing | None:
    """From the image processor of a folder or name; from its file alone where the class cannot be made here."""
    transformers = import_library("transformers")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name, backend="pil")
    except Exception:  # no Pillow version of it, or a torchvision that cannot be imported
        try:
            said = transformers.ImageProcessingMixin.get_image_processor_dict(name)[0]
        except OSError:
            return None
        return transformers_preprocessing(said)
    return processor_preprocessing(processor)


_MODULES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
_BY_NAME: dict[str, Callable[[str], Preprocessing | None]] = {
    "timm": _timm_of,
    "torchvision": _torchvision_of,
    "hf": _processor_of,
}


def _imagenet(size: Any) -> Preprocessing:
    """ImageNet's mean and std; at 224 cut from 256, as torchvision does by default."""
    sides = (224, 224) if size is None else (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
    return Preprocessing(sides, IMAGENET["mean"], IMAGENET["std"], resize=256 if sides == (224, 224) else None)


def _told(how: Preprocessing) -> str:
    return f"{how.size[0]}×{how.size[1]} and ImageNet's mean and std are taken"


def _fields(said: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = said if isinstance(said, Mapping) else said.to_dict()
    return fields
