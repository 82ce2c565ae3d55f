"""An image file as a model's input."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from agop.errors import FileError, InputError

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# Formats that Pillow decodes itself: for PostScript, for example, it would start another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's tables for scaling take up to 48 bytes per pixel of a side.
_MOST_SIDE = 1_000_000


@contextmanager
def open_image(path: str | os.PathLike[str], kind: str = "an image") -> Iterator[Image.Image]:
    """The open image file. What goes wrong in the block raises FileError with the file's name."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            if max(file.size) > _MOST_SIDE:
                raise ValueError(f"it is {file.width}×{file.height}, a side has at most {_MOST_SIDE:,} pixels")
            yield file
    except UnidentifiedImageError as error:
        raise FileError(f"{path} can't be read as {kind}: unknown format, use {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise FileError(f"{path} can't be read as {kind}: too many pixels, make it smaller ({error})") from error
    except (OSError, ValueError, SyntaxError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path} can't be read as {kind}: {reason}") from error


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

# An input takes 200 MB at this size. A larger number in a file or option is a mistake.
_MOST_PIXELS = 4096 * 4096
# Of an image that would have more pixels before the crop, as a narrow one, only what stays is scaled.
_MOST_SCALED = 2**24

OMITTED: dict[str, Any] = {"resize": None, "interpolation": "bilinear"}  # defaults that a manifest omits


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes a model's input (C,H,W): cropped to size (H,W), then (x/255 − mean) / std per channel.

    Args:
        size: Height and width of the input.
        mean: One value, or one per channel.
        std: One value, or one per channel.
        gray: One channel instead of three.
        resize: Size before the crop: of the shorter side, or of both sides (H,W) without regard to the aspect ratio.
            Without it the image is scaled to just cover `size`.
        interpolation: One of Pillow's: bilinear, bicubic …

    Raises:
        InputError: For values that aren't finite, positive or in this form.

    Example:
        preprocessing = agop.Preprocessing((224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), resize=256)
        images = preprocessing.tensor(preprocessing.picture("cat.jpg"))[None]
    """

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    gray: bool = False
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if len(self.size) != 2:
            raise InputError(f"size has {len(self.size)} values: give 2, height and width")
        allowed = (1,) if self.gray else (1, 3)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in allowed:
                raise InputError(f"{name} has {len(values)} values: give {' or '.join(map(str, allowed))}")
            if not all(map(math.isfinite, values)):
                raise InputError(f"{name} is {', '.join(map(str, values))}: give finite numbers")
        resize = (self.resize,) if isinstance(self.resize, int) else self.resize or self.size
        for name, numbers in (("std", self.std), ("size", self.size), ("resize", resize)):
            if min(numbers) <= 0:
                raise InputError(f"{name} is {'x'.join(map(str, numbers))}: it must be above 0")
        height, width = self.size
        if height * width > _MOST_PIXELS:
            raise InputError(f"size is {height}x{width}: it has at most {_MOST_PIXELS:,} pixels, as 4096x4096")
        if self.interpolation.upper() not in Image.Resampling.__members__:
            names = ", ".join(name.lower() for name in Image.Resampling.__members__)
            raise InputError(f"interpolation is {self.interpolation!r}: give one of {names}")

    def picture(self, path: str | os.PathLike[str]) -> Image.Image:
        """The image of a file, upright, scaled and cropped to the size around its centre."""
        with open_image(path) as file:
            upright = _to_8_bits(ImageOps.exif_transpose(file)).convert("L" if self.gray else "RGB")
        return self.cut(upright, Image.Resampling[self.interpolation.upper()])

    def cut(self, picture: Image.Image, how: Image.Resampling) -> Image.Image:
        """An image, or its mask, scaled and cropped to the size around its centre; padded with black."""
        height, width = self.size
        if self.resize is None:
            return ImageOps.fit(picture, (width, height), how)
        if isinstance(self.resize, int):
            columns, rows = (int(self.resize * side / min(picture.size)) for side in picture.size)
        else:
            rows, columns = self.resize
        left, top = _margin(columns, width), _margin(rows, height)
        if columns * rows > _MOST_SCALED:
            return _scaled_part(picture, how, (columns, rows), (left, top, left + width, top + height))
        return picture.resize((columns, rows), how).crop((left, top, left + width, top + height))

    def tensor(self, picture: Image.Image) -> Tensor:
        """The model's input (C,H,W)."""
        pixels = torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255)
        channels = pixels[None] if self.gray else pixels.permute(2, 0, 1)
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (self.mean, self.std))
        return (channels - mean) / std

    def zeros(self, count: int = 1) -> Tensor:
        """Zeros (N,C,H,W) of the shape of the model's input."""
        return torch.zeros(count, 1 if self.gray else 3, *self.size)

    @property
    def extremes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Input values of black and of white, per channel."""
        channels = 1 if self.gray else 3
        means, stds = (values * (channels // len(values)) for values in (self.mean, self.std))
        pairs = list(zip(means, stds, strict=True))
        return tuple((0.0 - mean) / std for mean, std in pairs), tuple((1.0 - mean) / std for mean, std in pairs)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Read what `to_dict` returned, also after JSON. Raises FileError for unknown fields and invalid values."""
        if unknown := sorted(values.keys() - {field.name for field in fields(cls)}):
            raise FileError(f"preprocessing has unknown fields ({', '.join(unknown)[:80]}): upgrade agop")
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        try:
            return cls(**given)
        except (InputError, TypeError, AttributeError, OverflowError) as error:
            raise FileError(f"preprocessing is invalid: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Fields for a manifest; `resize` and `interpolation` only if they differ from the default."""
        return {name: value for name, value in asdict(self).items() if name not in OMITTED or value != OMITTED[name]}


def _to_8_bits(image: Image.Image) -> Image.Image:
    """An image of 16 bits, or of float values in 0..1, with 8 bits. Pillow would clip its values instead."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "I":
        raise ValueError("it has 32-bit integers of unknown range: save it with 8 or 16 bits")
    if image.mode != "F":
        return image
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(f"it has float values from {low:g} to {high:g}: scale them to 0..1, or save it with 8 bits")
    return Image.fromarray((values * 255).round().astype(np.uint8))


def _scaled_part(
    picture: Image.Image, how: Image.Resampling, scaled: tuple[int, int], box: tuple[int, int, int, int]
) -> Image.Image:
    """A box of the scaled image, of which only the box is computed: equal up to rounding."""
    left, top, right, bottom = box
    x0, y0, x1, y1 = max(left, 0), max(top, 0), min(right, scaled[0]), min(bottom, scaled[1])
    across, down = picture.width / scaled[0], picture.height / scaled[1]
    source = (x0 * across, y0 * down, min(x1 * across, picture.width), min(y1 * down, picture.height))
    part = picture.resize((x1 - x0, y1 - y0), how, source)
    return part.crop((left - x0, top - y0, right - x0, bottom - y0))


def _margin(side: int, wanted: int) -> int:
    """Start of a crop of length `wanted`; below 0 if the side is too short. Rounds as torchvision does."""
    return round((side - wanted) / 2) if side >= wanted else -((wanted - side) // 2)
