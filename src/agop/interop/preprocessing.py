"""How a library's model wants its pictures, from the library's own words for it."""

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

_WARPED_FROM = 384  # ConvNeXt's processor squeezes pictures of this size and above, and cuts smaller ones


def timm_preprocessing(said: Mapping[str, Any], size: tuple[int, int] | None = None) -> Preprocessing:
    """From timm's `pretrained_cfg`, with timm's defaults; `size` in place of its input size.

    A size that is not square is just covered.
    """
    known = {name: value for name, value in said.items() if value is not None}
    height, width = size or tuple(known.get("input_size", (3, 224, 224)))[-2:]
    share = known.get("crop_pct", 0.875)
    scaled = (math.floor(height / share), math.floor(width / share))
    kept = scaled[0] if height == width else None
    return Preprocessing(
        size=(height, width),
        mean=tuple(known.get("mean", IMAGENET["mean"])),
        std=tuple(known.get("std", IMAGENET["std"])),
        resize=scaled if known.get("crop_mode") == "squash" else kept,
        interpolation=known.get("interpolation", "bicubic"),
    )


def torchvision_preprocessing(preset: Any) -> Preprocessing:
    """From what `weights.transforms()` of torchvision gives."""
    return Preprocessing(
        size=(preset.crop_size[0], preset.crop_size[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        resize=preset.resize_size[0],
        interpolation=preset.interpolation.value,
    )


def transformers_preprocessing(said: Mapping[str, Any]) -> Preprocessing:
    """From a Hugging Face image processor's fields, its preprocessor_config.json."""
    size, resize = _sizes(said)
    cut = Preprocessing(size=size, resize=resize, interpolation=_interpolation(said.get("resample")))
    # The processor computes (x · factor − offset − mean) / std of pixels x from 0 to 255.
    factor = 255 * said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 255.0
    offset = 1.0 if said.get("rescale_offset") else 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if said.get("do_normalize", True):
        mean, std = _channels(said.get("image_mean"), "mean"), _channels(said.get("image_std"), "std")
    if said.get("include_top"):  # EfficientNet's divides once more
        std = tuple(value * value for value in std)
    return replace(
        cut, mean=tuple((value + offset) / factor for value in mean), std=tuple(value / factor for value in std)
    )


def processor_preprocessing(processor: Any) -> Preprocessing:
    """From a Hugging Face image processor itself, tried on a picture: raises if it prepares that otherwise."""
    # What an object does not speak of it does not do; a file leaves out what is done by default.
    said = {"do_normalize": False} | processor.to_dict()
    picture = _gradients()
    try:
        how = transformers_preprocessing(said)
        ours = how.tensor(how.cut(picture, Image.Resampling[how.interpolation.upper()]))
        theirs = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        alike = _alike(ours, theirs.to(ours), how)
    except Exception as error:  # each processor has its own fields, and its own answers
        raise _unknown(processor) from error
    if not alike:
        raise _unknown(processor)
    return how


def _unknown(processor: Any) -> ModelError:
    return ModelError(
        f"{type(processor).__name__} prepares its pictures in a way that agop does not know: pass images prepared by "
        "the processor yourself, or on the command line say --size, --mean and --std"
    )


def _gradients() -> Image.Image:
    """A picture, wider than high, that grows to the right in red, downwards in green, and to the top left in blue."""
    right, down = np.meshgrid(np.linspace(0, 1, 131), np.linspace(0, 1, 97))
    channels = np.stack([right, down, 1 - (right + down) / 2], axis=-1)
    return Image.fromarray((255 * channels).round().astype(np.uint8))


def _alike(ours: Tensor, theirs: Tensor, how: Preprocessing) -> bool:
    """True if two inputs (C,H,W) are one picture, but for a cut one pixel apart and what that changes at its edge."""
    if ours.shape != theirs.shape:
        return False
    step = ours.diff(dim=1).abs().mean((1, 2)) + ours.diff(dim=2).abs().mean((1, 2))
    apart = (ours - theirs).abs().flatten(1).quantile(0.9, dim=1)
    rounding = 2 / 255 / torch.tensor(how.std)
    return bool((apart <= 1.25 * step + rounding).all())


def _sizes(said: Mapping[str, Any]) -> tuple[tuple[int, int], int | tuple[int, int] | None]:
    """The size (H,W) and what is scaled to before."""
    crop = _pair(said.get("crop_size")) if said.get("do_center_crop") else None
    size, share = said.get("size"), said.get("crop_pct")
    if not said.get("do_resize", True) or size is None:
        return crop or _pair(size) or Preprocessing().size, None
    shorter = _shorter(size, share is not None)
    if shorter is None:
        both = _pair(size) or Preprocessing().size
        return crop or both, both
    square = (shorter, shorter)
    if share is not None and crop is None and shorter >= _WARPED_FROM:
        return square, square
    return crop or square, shorter if share is None else int(shorter / share)


def _shorter(size: Any, by_share: bool) -> int | None:
    """The shorter side that a size names, if it does not name both."""
    if isinstance(size, Mapping):
        found = size.get("shortest_edge")
        return None if found is None else int(found)
    return int(size) if by_share and isinstance(size, int) else None


def _pair(size: Any) -> tuple[int, int] | None:
    """Height and width of a size as processors write it: a number, two, or a mapping."""
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


def _interpolation(number: int | None) -> str:
    return Image.Resampling(Image.Resampling.BILINEAR if number is None else number).name.lower()
