"""Pictures on disk as tensors: one file, or a folder of class folders."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a model's input: cut to size (H,W), then (x/255 − mean) / std a channel."""

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    gray: bool = False

    def __post_init__(self) -> None:
        allowed = (1,) if self.gray else (1, 3)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in allowed:
                raise InputError(f"{name} has {len(values)} values: give {' or '.join(map(str, allowed))}")
        for name, numbers in (("std", self.std), ("size", self.size)):
            if min(numbers) <= 0:
                raise InputError(f"{name} is {'x'.join(map(str, numbers))}: it must be above 0")

    def picture(self, path: Path) -> Image.Image:
        """The picture, upright, scaled to cover the size and cut to it around its centre."""
        try:
            with Image.open(path) as file:
                upright = _shallow(ImageOps.exif_transpose(file)).convert("L" if self.gray else "RGB")
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError, SyntaxError) as error:
            raise FileError(f"{path} cannot be read as a picture: {error}") from error
        return ImageOps.fit(upright, (self.size[1], self.size[0]), Image.Resampling.BILINEAR)

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
        """The fields, for a manifest."""
        return asdict(self)


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


def _readable(samples: list[tuple[Tensor, int] | None]) -> tuple[Tensor, Tensor] | None:
    read = [sample for sample in samples if sample is not None]
    if not read:
        return None
    images, labels = zip(*read, strict=True)
    return torch.stack(images), torch.tensor(labels)


def pictures_in(folder: Path) -> list[Path]:
    """The picture files below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
