"""Folders of images, with a folder for each class."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from agop.errors import FileError, InputError, warn
from agop.pictures.preprocessing import Preprocessing

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}

# How many pictures a folder tells by content: of 64, one of a part as large as a tenth is missed once in 800 times.
_TOLD = 64


class ClassFolders(Dataset[tuple[Tensor, int] | None]):
    """The pictures of a folder of class folders; a class's index is its folder's place by name."""

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: give one with a folder of pictures for each class")
        self.classes = sorted(child.name for child in folder.iterdir() if child.is_dir())
        self.preprocessing = preprocessing
        self.files = [(path, index) for index, name in enumerate(self.classes) for path in image_files(folder / name)]
        if not self.files:
            raise InputError(f"{folder} has no images in class folders: put them in {folder}/CLASS/NAME.png")

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


def image_files(folder: Path) -> list[Path]:
    """The picture files below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


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
