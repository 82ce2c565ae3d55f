"""Image folders with a folder per class."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from agop.errors import FileError, InputError, warn
from agop.pictures.image_files import class_folders, image_files
from agop.pictures.preprocessing import Preprocessing

# Files that `summary` identifies by content. With 64, an overlap of a tenth is missed once in 800 times.
_HASHED = 64


class ClassFolders(Dataset[tuple[Tensor, int] | None]):
    """Images of a folder with a folder per class. A class's index is the position of its folder by name."""

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: pass a folder with a folder of images per class")
        self.classes = class_folders(folder)
        self.preprocessing = preprocessing
        self.files = [(path, index) for index, name in enumerate(self.classes) for path in image_files(folder / name)]
        if not self.files:
            raise InputError(f"{folder} has no images in class folders: put them in {folder}/CLASS/NAME.png")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int] | None:
        """Input and label of an image; None, with a warning, if it can't be read."""
        path, label = self.files[index]
        try:
            return self.preprocessing.tensor(self.preprocessing.picture(path)), label
        except FileError as error:
            warn(f"skipped: {error}")
            return None

    def share(self, rank: int, count: int) -> ClassFolders:
        """The images of one of `count` ranks: every `count`-th."""
        shared = copy.copy(self)
        shared.files = self.files[rank::count]
        return shared

    def summary(self) -> dict[str, Any]:
        """Number of files, a hash of their names, and hashes of names with contents of some files.

        Those with the smallest hashes of names are used, so that two folders that share files share hashes.
        """
        names = [os.fsencode(f"{self.classes[label]}/{path.name}") for path, label in self.files]
        hashed = sorted((_hash(name), path) for name, (path, _) in zip(names, self.files, strict=True))
        some = [_hash(name.encode() + _content(path)) for name, path in hashed[:_HASHED]]
        return {"count": len(names), "names": _hash(b"\0".join(names)), "some": some}

    def batches(self, batch_size: int, workers: int = 0) -> Batches:
        """Batches (images, labels) in order, without unreadable images."""
        return Batches(DataLoader(self, batch_size, num_workers=workers, collate_fn=_stack_readable))


@dataclass(frozen=True)
class Batches:
    """Batches of a loader, without those in which no image was readable."""

    loader: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (batch for batch in self.loader if batch is not None)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _content(path: Path) -> bytes:
    """Bytes of a file; empty if unreadable, which is reported when the image itself is read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _stack_readable(samples: list[tuple[Tensor, int] | None]) -> tuple[Tensor, Tensor] | None:
    readable = [sample for sample in samples if sample is not None]
    if not readable:
        return None
    images, labels = zip(*readable, strict=True)
    return torch.stack(images), torch.tensor(labels)
