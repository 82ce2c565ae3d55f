"""Models of timm, torchvision and transformers, with the preprocessing and the GradCAM layer that they define."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import InputError, ModelError, warn
from agop.interop.library_preprocessing import (
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
class LibraryModel:
    """A library's model and its preprocessing."""

    model: nn.Module
    preprocessing: Preprocessing

    @property
    def layer(self) -> str:
        """Name of GradCAM's default layer, from one forward pass over noise."""
        channels = 1 if self.preprocessing.gray else 3
        noise = torch.randn(1, channels, *self.preprocessing.size, generator=torch.Generator().manual_seed(0))
        return layer_name(self.model, noise)

    def images(self, paths: Iterable[str | os.PathLike[str]]) -> Tensor:
        """The model's input (N,C,H,W) from image files."""
        files = [paths] if isinstance(paths, str | os.PathLike) else paths
        tensors = [self.preprocessing.tensor(self.preprocessing.picture(path)) for path in files]
        if not tensors:
            raise InputError("no image: pass at least one path")
        return torch.stack(tensors)


def from_timm(model: nn.Module) -> LibraryModel:
    """A timm model with the preprocessing of its `pretrained_cfg`, at the size the model was created for."""
    check_model(model)
    config = getattr(model, "pretrained_cfg", None)
    if config is None:
        raise ModelError(f"{type(model).__name__} has no pretrained_cfg: pass a model from timm.create_model")
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return LibraryModel(model, timm_preprocessing(_fields(config), size))


def from_torchvision(model: nn.Module, weights: Any = None) -> LibraryModel:
    """A torchvision model with the preprocessing of its weights, for example ResNet18_Weights.DEFAULT.

    A torchvision model doesn't store which weights it has. Without `weights`, the preprocessing is ImageNet's mean and
    std, at the model's `image_size` if it has one.
    """
    check_model(model)
    if weights is None:
        return LibraryModel(model, _imagenet(getattr(model, "image_size", None)))
    if isinstance(weights, str):
        weights = import_library("torchvision").models.get_weight(weights)
    return LibraryModel(model, torchvision_preprocessing(weights.transforms()))


def from_transformers(model: nn.Module, processor: Any = None) -> LibraryModel:
    """A Hugging Face image classifier with the preprocessing of its image processor.

    `processor` is an image processor, or its fields as a mapping. By default it's loaded from where the model came
    from. A processor is tested on an image: if its result can't be reproduced, this raises ModelError.
    """
    check_model(model)
    if isinstance(processor, Mapping):
        return LibraryModel(model, transformers_preprocessing(processor))
    if processor is not None:
        return LibraryModel(model, processor_preprocessing(processor))
    config = getattr(model, "config", None)
    name = getattr(config, "name_or_path", "")
    preprocessing = _hugging_face_preprocessing(name) if name else None
    if preprocessing is None:
        preprocessing = _imagenet(getattr(config, "image_size", None))
        warn(f"the model has no image processor: {_assumption(preprocessing)}; pass processor= if that's wrong")
    return LibraryModel(model, preprocessing)


def preprocessing_of(spec: str, strict: bool = True) -> Preprocessing:
    """Preprocessing of torchvision:NAME, timm:NAME or hf:NAME; ImageNet's if the library defines none.

    An unknown name gets ImageNet's: loading the model raises the error. `strict`: warn about a Hugging Face model
    without an image processor, and raise ModelError for a processor whose result can't be reproduced.
    """
    library, _, name = spec.partition(":")
    import_library(_MODULES[library])
    try:
        preprocessing = _PREPROCESSING[library](name)
        if preprocessing is not None or library != "hf":
            return preprocessing or _imagenet(None)
        config = import_library("transformers").AutoConfig.from_pretrained(name)
    except Exception as error:  # each library has its own
        if strict and isinstance(error, ModelError):
            raise
        return _imagenet(None)
    preprocessing = _imagenet(getattr(config, "image_size", None))
    if strict:
        warn(
            f"{name} has no preprocessor_config.json: {_assumption(preprocessing)}; set --size, --mean and --std as in "
            "training"
        )
    return preprocessing


def _timm_preprocessing(name: str) -> Preprocessing | None:
    timm = import_library("timm")
    # timm lists no config for a name with a source, such as hf-hub:NAME.
    config = timm.create_model(name).pretrained_cfg if ":" in name else timm.get_pretrained_cfg(name)
    return None if config is None else timm_preprocessing(_fields(config))


def _torchvision_preprocessing(name: str) -> Preprocessing | None:
    return torchvision_preprocessing(import_library("torchvision").models.get_model_weights(name).DEFAULT.transforms())


def _hugging_face_preprocessing(name: str) -> Preprocessing | None:
    """Preprocessing of a folder's or name's image processor, or of its config file if the class isn't available."""
    transformers = import_library("transformers")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name, backend="pil")
    except Exception:  # it has no Pillow version, or torchvision can't be imported
        try:
            fields = transformers.ImageProcessingMixin.get_image_processor_dict(name)[0]
        except OSError:
            return None
        return transformers_preprocessing(fields)
    return processor_preprocessing(processor)


_MODULES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
_PREPROCESSING: dict[str, Callable[[str], Preprocessing | None]] = {
    "timm": _timm_preprocessing,
    "torchvision": _torchvision_preprocessing,
    "hf": _hugging_face_preprocessing,
}


def _imagenet(size: Any) -> Preprocessing:
    """ImageNet's mean and std. At size 224, a centre crop from 256, torchvision's default."""
    sides = (224, 224) if size is None else (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
    return Preprocessing(sides, IMAGENET["mean"], IMAGENET["std"], resize=256 if sides == (224, 224) else None)


def _assumption(preprocessing: Preprocessing) -> str:
    height, width = preprocessing.size
    return f"assuming {height}×{width} and ImageNet's mean and std"


def _fields(config: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    return fields
