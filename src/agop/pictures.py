"""Pictures on disk as tensors: one file, or a folder of class folders."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from agop.errors import FileError, InputError, warn

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

# How many pictures a folder tells by content: of 64, one of a part as large as a tenth is missed once in 800 times.
_TOLD = 64
UNSAID: dict[str, Any] = {"resize": None, "interpolation": "bilinear"}  # what a manifest leaves out


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a model's input: cut to size (H,W), then (x/255 − mean) / std a channel.

    `resize` is what it is scaled to before the cut: its shorter side, or both sides (H,W) whatever its shape. Without
    it the picture just covers the size. `interpolation` is one of Pillow's: bilinear, bicubic, lanczos, nearest …
    """

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    gray: bool = False
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        allowed = (1,) if self.gray else (1, 3)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in allowed:
                raise InputError(f"{name} has {len(values)} values: give {' or '.join(map(str, allowed))}")
        resize = (self.resize,) if isinstance(self.resize, int) else self.resize or self.size
        for name, numbers in (("std", self.std), ("size", self.size), ("resize", resize)):
            if min(numbers) <= 0:
                raise InputError(f"{name} is {'x'.join(map(str, numbers))}: it must be above 0")
        if self.interpolation.upper() not in Image.Resampling.__members__:
            known = ", ".join(name.lower() for name in Image.Resampling.__members__)
            raise InputError(f"interpolation is {self.interpolation!r}: give one of {known}")

    def picture(self, path: str | os.PathLike[str]) -> Image.Image:
        """The picture, upright, scaled and cut to the size around its centre."""
        try:
            with Image.open(path) as file:
                upright = _shallow(ImageOps.exif_transpose(file)).convert("L" if self.gray else "RGB")
        except UnidentifiedImageError as error:
            raise FileError(f"{path} cannot be read as a picture: its content is none that Pillow knows") from error
        except (OSError, Image.DecompressionBombError, ValueError, SyntaxError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"{path} cannot be read as a picture: {reason}") from error
        return self.cut(upright, Image.Resampling[self.interpolation.upper()])

    def cut(self, picture: Image.Image, how: Image.Resampling) -> Image.Image:
        """A picture, or its mask, scaled and cut to the size around its centre; black where it does not reach."""
        height, width = self.size
        if self.resize is None:
            return ImageOps.fit(picture, (width, height), how)
        scaled = picture.resize(self._scaled(*picture.size), how)
        left, top = _margin(scaled.width, width), _margin(scaled.height, height)
        return scaled.crop((left, top, left + width, top + height))

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of a picture before it is cut."""
        if not isinstance(self.resize, int):
            rows, columns = self.resize or self.size
            return columns, rows
        shorter = min(width, height)
        return int(self.resize * width / shorter), int(self.resize * height / shorter)

    def tensor(self, picture: Image.Image) -> Tensor:
        """The model's input (C,H,W)."""
        pixels = torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255)
        channels = pixels[None] if self.gray else pixels.permute(2, 0, 1)
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (self.mean, self.std))
        return (channels - mean) / std

    @property
    def extremes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values of black and white, a channel each."""
        black, white = (
            tuple((value - mean) / std for mean, std in zip(self._full(self.mean), self._full(self.std), strict=True))
            for value in (0.0, 1.0)
        )
        return black, white

    def _full(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """One value a channel."""
        return values * (1 if self.gray or len(values) == 3 else 3)

    def described(self) -> dict[str, Any]:
        """The fields, for a manifest; how it is scaled only if that is not as by default."""
        return {name: value for name, value in asdict(self).items() if name not in UNSAID or value != UNSAID[name]}


def _shallow(image: Image.Image) -> Image.Image:
    """A picture of 16 bits with 8: Pillow would cut every value above 255 to white."""
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if image.mode.startswith("I;16") else image


class ClassFolders(Dataset[tuple[Tensor, int] | None]):
    """The pictures of a folder of class folders; a class's index is its folder's place by name."""

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: give one with a folder of pictures for each class")
        self.classes = sorted(child.name for child in folder.iterdir() if child.is_dir())
        self.preprocessing = preprocessing
        self.files = [(path, index) for index, name in enumerate(self.classes) for path in pictures_in(folder / name)]
        if not self.files:
            raise InputError(f"{folder} holds no pictures in class folders: put them in {folder}/CLASS/NAME.png")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int] | None:
        """The input and label of a picture, or None, with a warning, if it cannot be read."""
        path, label = self.files[index]
        try:
            return self.preprocessing.tensor(self.preprocessing.picture(path)), label
        except FileError as error:
            warn(f"left out: {error}")
            return None

    def share(self, rank: int, count: int) -> ClassFolders:
        """Every so many-th picture: those of one rank of several."""
        shared = copy.copy(self)
        shared.files = self.files[rank::count]
        return shared

    def told(self) -> dict[str, Any]:
        """Their number, a digest of their names, and names with contents of some: what is met again in overlaps.

        Those with the smallest hashes of names are told: of pictures that two folders share both tell some.
        """
        names = [f"{self.classes[label]}/{path.name}" for path, label in self.files]
        hashed = sorted((_hash(name.encode()), path) for name, (path, _) in zip(names, self.files, strict=True))
        some = [_hash(name.encode() + _content(path)) for name, path in hashed[:_TOLD]]
        return {"count": len(names), "names": _hash(chr(0).join(names).encode()), "some": some}

    def batches(self, batch_size: int, workers: int = 0) -> Batches:
        """Batches (images, labels) in order, without the pictures that cannot be read."""
        return Batches(DataLoader(self, batch_size, num_workers=workers, collate_fn=_readable))


@dataclass(frozen=True)
class Batches:
    """A loader's batches, without those of which nothing could be read."""

    loader: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (batch for batch in self.loader if batch is not None)


def _margin(side: int, wanted: int) -> int:
    """Where a cut of the wanted length begins on a side; below 0 if the side is too short. As torchvision rounds."""
    return round((side - wanted) / 2) if side >= wanted else -((wanted - side) // 2)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _content(path: Path) -> bytes:
    """The bytes of a picture; none if it cannot be read, which `fit` tells when it comes to it."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _readable(samples: list[tuple[Tensor, int] | None]) -> tuple[Tensor, Tensor] | None:
    read = [sample for sample in samples if sample is not None]
    if not read:
        return None
    images, labels = zip(*read, strict=True)
    return torch.stack(images), torch.tensor(labels)


def pictures_in(folder: Path) -> list[Path]:
    """The picture files below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
