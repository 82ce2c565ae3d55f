"""Preprocessing from the configs of timm, torchvision and transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from agop.errors import ModelError
from agop.pictures.preprocessing import IMAGENET, Preprocessing

_SQUASHED_FROM = 384  # ConvNeXt's processor squashes images from this size on, and crops at smaller sizes


def timm_preprocessing(config: Mapping[str, Any], size: tuple[int, int] | None = None) -> Preprocessing:
    """Preprocessing of timm's `pretrained_cfg`, with timm's defaults. `size` replaces its input size.

    For a size that isn't square, the image is scaled to just cover it.
    """
    fields = {name: value for name, value in config.items() if value is not None}
    height, width = size or tuple(fields.get("input_size", (3, 224, 224)))[-2:]
    share = fields.get("crop_pct", 0.875)
    scaled = (math.floor(height / share), math.floor(width / share))
    shorter = scaled[0] if height == width else None
    return Preprocessing(
        size=(height, width),
        mean=tuple(fields.get("mean", IMAGENET["mean"])),
        std=tuple(fields.get("std", IMAGENET["std"])),
        resize=scaled if fields.get("crop_mode") == "squash" else shorter,
        interpolation=fields.get("interpolation", "bicubic"),
    )


def torchvision_preprocessing(preset: Any) -> Preprocessing:
    """Preprocessing of torchvision's `weights.transforms()`."""
    return Preprocessing(
        size=(preset.crop_size[0], preset.crop_size[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        resize=preset.resize_size[0],
        interpolation=preset.interpolation.value,
    )


def transformers_preprocessing(fields: Mapping[str, Any]) -> Preprocessing:
    """Preprocessing of a Hugging Face image processor's fields, its preprocessor_config.json."""
    size, resize = _sizes(fields)
    crop = Preprocessing(size=size, resize=resize, interpolation=_interpolation(fields.get("resample")))
    # The processor computes (x · factor − offset − mean) / std of pixels x from 0 to 255.
    factor = 255 * fields.get("rescale_factor", 1 / 255) if fields.get("do_rescale", True) else 255.0
    offset = 1.0 if fields.get("rescale_offset") else 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if fields.get("do_normalize", True):
        mean, std = _channels(fields.get("image_mean"), "mean"), _channels(fields.get("image_std"), "std")
    if fields.get("include_top"):  # EfficientNet's processor divides twice
        std = tuple(value * value for value in std)
    return replace(
        crop, mean=tuple((value + offset) / factor for value in mean), std=tuple(value / factor for value in std),
        gray=fields.get("do_normalize", True) and _length(fields.get("image_mean")) == 1,
    )  # fmt: skip


def processor_preprocessing(processor: Any) -> Preprocessing:
    """Preprocessing of a Hugging Face image processor, tested on an image. Raises ModelError if the results differ."""
    # A processor without the field doesn't normalise; in a config file, a missing field means the default.
    fields = {"do_normalize": False} | processor.to_dict()
    try:
        preprocessing = transformers_preprocessing(fields)
        image = _test_image().convert("L" if preprocessing.gray else "RGB")
        ours = preprocessing.tensor(preprocessing.cut(image, Image.Resampling[preprocessing.interpolation.upper()]))
        theirs = processor(images=image, return_tensors="pt")["pixel_values"][0]
        matches = _matches(ours, theirs.to(ours), preprocessing)
    except Exception as error:  # each processor has its own fields and results
        raise _unsupported(processor) from error
    if not matches:
        raise _unsupported(processor)
    return preprocessing


def _unsupported(processor: Any) -> ModelError:
    return ModelError(
        f"agop can't reproduce the preprocessing of {type(processor).__name__}: prepare the images with the processor "
        "yourself, or on the command line set --size, --mean and --std"
    )


def _test_image() -> Image.Image:
    """An image, wider than high. Red increases to the right, green downwards, blue towards the top left."""
    right, down = np.meshgrid(np.linspace(0, 1, 131), np.linspace(0, 1, 97))
    channels = np.stack([right, down, 1 - (right + down) / 2], axis=-1)
    return Image.fromarray((255 * channels).round().astype(np.uint8))


def _matches(ours: Tensor, theirs: Tensor, preprocessing: Preprocessing) -> bool:
    """True if two inputs (C,H,W) differ at most by a crop that is one pixel off, and its effect at the edge."""
    if ours.shape != theirs.shape:
        return False
    step = ours.diff(dim=1).abs().mean((1, 2)) + ours.diff(dim=2).abs().mean((1, 2))
    difference = (ours - theirs).abs().flatten(1).quantile(0.9, dim=1)
    rounding = 2 / 255 / torch.tensor(preprocessing.std)
    return bool((difference <= 1.25 * step + rounding).all())


def _sizes(fields: Mapping[str, Any]) -> tuple[tuple[int, int], int | tuple[int, int] | None]:
    """Final size (H,W), and the size to scale to before cropping."""
    crop = _pair(fields.get("crop_size")) if fields.get("do_center_crop") else None
    size, share = fields.get("size"), fields.get("crop_pct")
    if not fields.get("do_resize", True) or size is None:
        return crop or _pair(size) or Preprocessing().size, None
    shorter = _shorter_side(size, share is not None)
    if shorter is None:
        both = _pair(size) or Preprocessing().size
        return crop or both, both
    square = (shorter, shorter)
    if share is not None and crop is None and shorter >= _SQUASHED_FROM:
        return square, square
    return crop or square, shorter if share is None else int(shorter / share)


def _shorter_side(size: Any, has_crop_share: bool) -> int | None:
    """The shorter side, if the size doesn't define both."""
    if isinstance(size, Mapping):
        side = size.get("shortest_edge")
        return None if side is None else int(side)
    return int(size) if has_crop_share and isinstance(size, int) else None


def _pair(size: Any) -> tuple[int, int] | None:
    """Height and width from a processor's size: a number, two, or a mapping."""
    if isinstance(size, Mapping):
        height = size.get("height", size.get("shortest_edge"))
        return None if height is None else (int(height), int(size.get("width", height)))
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[-1])
    return None if size is None else (int(size), int(size))


def _channels(values: Any, name: str) -> tuple[float, ...]:
    if values is None:
        return IMAGENET[name]
    return tuple(map(float, values)) if isinstance(values, (list, tuple)) else (float(values),)


def _length(values: Any) -> int | None:
    """Number of channels of a list; None for one number, which is for any number of channels."""
    return len(values) if isinstance(values, (list, tuple)) else None


def _interpolation(number: int | None) -> str:
    return Image.Resampling(Image.Resampling.BILINEAR if number is None else number).name.lower()
