"""Models of timm, torchvision and transformers, with the preprocessing and the GradCAM layer that they define."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from agop.errors import InputError, ModelError, warn
from agop.images.preprocessing import IMAGENET, Preprocessing
from agop.model.layers import layer_name
from agop.model.load import import_library
from agop.model.probe import check_model

_SQUASHED_FROM = 384  # ConvNeXt's processor squashes images from this size on, and crops at smaller sizes


@dataclass(frozen=True)
class LibraryModel:
    """A library's model and its preprocessing."""

    model: nn.Module
    preprocessing: Preprocessing

    @property
    def layer(self) -> str:
        """Name of GradCAM's default layer, from one forward pass over noise."""
        noise = torch.randn(self.preprocessing.zeros().shape, generator=torch.Generator().manual_seed(0))
        return layer_name(self.model, noise)

    def images(self, paths: Iterable[str | os.PathLike[str]]) -> Tensor:
        """The model's input (N,C,H,W) from image files."""
        files = [paths] if isinstance(paths, str | os.PathLike) else paths
        tensors = [self.preprocessing.tensor(self.preprocessing.picture(path)) for path in files]
        if not tensors:
            raise InputError("no image: pass at least one path")
        return torch.stack(tensors)


def from_timm(model: nn.Module) -> LibraryModel:
    """A timm model with the preprocessing of its `pretrained_cfg`, at the size the model was created for.

    Args:
        model: A model from timm.create_model.

    Returns:
        An object with `model`, `preprocessing`, `layer` and `images(paths)`.

    Raises:
        ModelError: The model has no `pretrained_cfg`.

    Example:
        >>> described = agop.integrations.from_timm(timm.create_model("resnet18", pretrained=True))
        >>> agop.explain(described.model, described.images(["cat.png"]), "vanilla")
    """
    check_model(model)
    config = getattr(model, "pretrained_cfg", None)
    if config is None:
        raise ModelError(f"{type(model).__name__} has no pretrained_cfg: pass a model from timm.create_model")
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return LibraryModel(model, _timm_preprocessing(config, size))


def from_torchvision(model: nn.Module, weights: Any = None) -> LibraryModel:
    """A torchvision model with the preprocessing of its weights.

    Args:
        model: A classifier from torchvision.models.
        weights: For example ResNet18_Weights.DEFAULT, or its name: a model doesn't store which weights it has. Without
            weights, ImageNet's mean and std are assumed, and the model's `image_size` if it has one.

    Returns:
        An object with `model`, `preprocessing`, `layer` and `images(paths)`.

    Raises:
        InputError: `model` isn't a torch.nn.Module.

    Example:
        >>> described = agop.integrations.from_torchvision(resnet18(weights="DEFAULT"), "ResNet18_Weights.DEFAULT")
        >>> agop.explain(described.model, described.images(["cat.png"]), "gradcam", layer=described.layer)
    """
    check_model(model)
    if weights is None:
        return LibraryModel(model, _imagenet(getattr(model, "image_size", None)))
    if isinstance(weights, str):
        weights = import_library("torchvision").models.get_weight(weights)
    return LibraryModel(model, _torchvision_preprocessing(weights))


def from_transformers(model: nn.Module, processor: Any = None) -> LibraryModel:
    """A Hugging Face image classifier with the preprocessing of its image processor.

    Args:
        model: An image classifier from transformers.
        processor: An image processor, or its fields as a mapping. By default it's loaded from where the model came
            from.

    Returns:
        An object with `model`, `preprocessing`, `layer` and `images(paths)`.

    Raises:
        ModelError: The processor's result on a test image can't be reproduced.

    Example:
        >>> model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")
        >>> described = agop.integrations.from_transformers(model)
    """
    check_model(model)
    if isinstance(processor, Mapping):
        processor = _processor(processor)
    if processor is not None:
        return LibraryModel(model, _processor_preprocessing(processor))
    config = getattr(model, "config", None)
    name = getattr(config, "name_or_path", "")
    preprocessing = _hugging_face_preprocessing(name) if name else None
    if preprocessing is None:
        preprocessing = _imagenet(getattr(config, "image_size", None))
        _warn_assuming(preprocessing, "the model has no image processor", "pass processor= if that's wrong")
    return LibraryModel(model, preprocessing)


def preprocessing_of(spec: str, strict: bool = True) -> Preprocessing:
    """Preprocessing of torchvision:NAME, timm:NAME or hf:NAME; ImageNet's if the library defines none.

    An unknown name gets ImageNet's: loading the model raises the error. `strict`: warn about a Hugging Face model
    without an image processor, and raise ModelError for a processor whose result can't be reproduced.
    """
    source, _, name = spec.partition(":")
    library = import_library("transformers" if source == "hf" else source)
    try:
        if source == "torchvision":
            return _torchvision_preprocessing(library.models.get_model_weights(name).DEFAULT)
        if source == "timm":
            # timm lists no config for a name with a source, such as hf-hub:NAME.
            config = library.create_model(name).pretrained_cfg if ":" in name else library.get_pretrained_cfg(name)
            return _timm_preprocessing(config)
        preprocessing = _hugging_face_preprocessing(name)
        if preprocessing is not None:
            return preprocessing
        preprocessing = _imagenet(getattr(library.AutoConfig.from_pretrained(name), "image_size", None))
    except Exception as error:  # each library has its own
        if strict and isinstance(error, ModelError):
            raise
        return _imagenet(None)
    if strict:
        fix = "set --size, --mean and --std as in training"
        _warn_assuming(preprocessing, f"{name} has no preprocessor_config.json", fix)
    return preprocessing


def _imagenet(size: Any) -> Preprocessing:
    """ImageNet's mean and std. At size 224, a centre crop from 256, torchvision's default."""
    sides = (224, 224) if size is None else (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
    return Preprocessing(sides, IMAGENET["mean"], IMAGENET["std"], resize=256 if sides == (224, 224) else None)


def _warn_assuming(preprocessing: Preprocessing, problem: str, fix: str) -> None:
    height, width = preprocessing.size
    warn(f"{problem}: assuming {height}×{width} and ImageNet's mean and std; {fix}")


def _timm_preprocessing(config: Any, size: tuple[int, int] | None = None) -> Preprocessing:
    """Preprocessing of a `pretrained_cfg`. At a size that isn't square, the image is scaled to just cover it."""
    data = import_library("timm.data")
    fields = config if isinstance(config, Mapping) else config.to_dict()
    settings = data.resolve_data_config({"input_size": (3, *size)} if size else {}, pretrained_cfg=fields)
    height, width = settings["input_size"][1:]
    scaled: Any = data.create_transform(**settings).transforms[0].size  # of the shorter side, or of both
    shorter = scaled if isinstance(scaled, int) else scaled[0]
    return Preprocessing(
        size=(height, width),
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        resize=tuple(scaled) if settings["crop_mode"] == "squash" else shorter if height == width else None,
        interpolation=settings["interpolation"],
    )


def _torchvision_preprocessing(weights: Any) -> Preprocessing:
    preset = weights.transforms()
    return Preprocessing(
        size=(preset.crop_size[0], preset.crop_size[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        resize=preset.resize_size[0],
        interpolation=preset.interpolation.value,
    )


def _hugging_face_preprocessing(name: str) -> Preprocessing | None:
    """Preprocessing of a folder's or name's image processor. None without one."""
    transformers = import_library("transformers")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name, backend="pil")
    except Exception:  # its class is unknown or has no Pillow version, or torchvision can't be imported
        try:
            processor = _processor(transformers.ImageProcessingMixin.get_image_processor_dict(name)[0])
        except OSError:
            return None
    return _processor_preprocessing(processor)


def _processor(fields: Mapping[str, Any]) -> Any:
    """The image processor of the fields of a preprocessor_config.json; ViT's if their class is unknown."""
    transformers = import_library("transformers")
    kind = str(fields.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    defaults = {"image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"]}
    return getattr(transformers, f"{kind}Pil", transformers.ViTImageProcessorPil)(**defaults | dict(fields))


def _processor_preprocessing(processor: Any) -> Preprocessing:
    """Preprocessing of an image processor, tested on an image. Raises ModelError if the results differ."""
    # Red increases to the right, green downwards, blue towards the top left. Wider than high.
    right, down = np.meshgrid(np.linspace(0, 1, 131), np.linspace(0, 1, 97))
    channels = np.stack([right, down, 1 - (right + down) / 2], axis=-1)
    try:
        preprocessing = _from_fields(processor.to_dict())
        image = Image.fromarray((255 * channels).round().astype(np.uint8)).convert("L" if preprocessing.gray else "RGB")
        ours = preprocessing.tensor(preprocessing.cut(image, Image.Resampling[preprocessing.interpolation.upper()]))
        theirs = processor(images=image, return_tensors="pt")["pixel_values"][0].to(ours)
        # They may differ by a crop that is one pixel off, and its effect at the edge.
        step = ours.diff(dim=1).abs().mean((1, 2)) + ours.diff(dim=2).abs().mean((1, 2))
        allowed = 1.25 * step + 2 / 255 / torch.tensor(preprocessing.std)
        difference = (ours - theirs).abs().flatten(1).quantile(0.9, dim=1)
        if ours.shape == theirs.shape and bool((difference <= allowed).all()):
            return preprocessing
        cause = None
    except Exception as error:  # each processor has its own fields and results
        cause = error
    raise ModelError(
        f"agop can't reproduce the preprocessing of {type(processor).__name__}: prepare the images with the processor "
        "yourself, or on the command line set --size, --mean and --std"
    ) from cause


def _from_fields(fields: Mapping[str, Any]) -> Preprocessing:
    """Preprocessing of an image processor's fields."""
    size, resize = _sizes(fields)
    # The processor computes (x · factor − offset − mean) / std of pixels x from 0 to 255.
    factor = 255 * fields["rescale_factor"] if fields["do_rescale"] else 255.0
    offset = 1.0 if fields.get("rescale_offset") else 0.0
    mean, std, gray = np.asarray([0.0]), np.asarray([1.0]), False
    if fields.get("do_normalize"):
        mean, std = np.atleast_1d(fields["image_mean"]), np.atleast_1d(fields["image_std"])
        gray = np.shape(fields["image_mean"]) == (1,)
    if fields.get("include_top"):  # EfficientNet's processor divides twice
        std = std * std
    return Preprocessing(
        size=size,
        mean=tuple(((mean + offset) / factor).tolist()),
        std=tuple((std / factor).tolist()),
        gray=gray,
        resize=resize,
        interpolation=Image.Resampling(fields["resample"]).name.lower(),
    )


def _sizes(fields: Mapping[str, Any]) -> tuple[tuple[int, int], int | tuple[int, int] | None]:
    """Final size (H,W), and the size to scale to before cropping."""
    shorter, share = fields["size"].get("shortest_edge"), fields.get("crop_pct")
    both = _both_sides(fields["size"])
    crop = _both_sides(fields["crop_size"]) if fields.get("do_center_crop") else None
    if not fields["do_resize"]:
        return crop or both, None
    if shorter is None or (share is not None and crop is None and shorter >= _SQUASHED_FROM):
        return crop or both, both
    return crop or both, shorter if share is None else int(shorter / share)


def _both_sides(size: Mapping[str, int]) -> tuple[int, int]:
    shorter = size.get("shortest_edge")
    return (size["height"], size["width"]) if shorter is None else (shorter, shorter)
