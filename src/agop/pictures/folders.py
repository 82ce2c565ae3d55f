"""Image folders, with a folder per class or without labels."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from agop.errors import FileError, InputError, warn
from agop.pictures.class_names import folder_classes
from agop.pictures.image_files import class_folders, image_files
from agop.pictures.preprocessing import Preprocessing

# Files that `summary` identifies by content. With 64, an overlap of a tenth is missed once in 800 times.
_HASHED = 64
_READ_TOGETHER = 32


class ImageFolder(Dataset[tuple[Tensor, int | None] | None]):
    """Images below a folder, without labels."""

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: pass a folder of images")
        self.folder, self.preprocessing = folder, preprocessing
        self.classes = self._classes()
        self.files = self._files()
        if not self.files:
            raise InputError(self._empty())

    def _classes(self) -> list[str]:
        return []

    def _files(self) -> list[tuple[Path, int | None]]:
        """Path and label of each image."""
        return [(path, None) for path in image_files(self.folder)]

    def _empty(self) -> str:
        return f"{self.folder} has no images: pass another folder"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int | None] | None:
        """Input of an image, and its label if there are class folders; None, with a warning, if it can't be read."""
        path, label = self.files[index]
        try:
            return self.preprocessing.tensor(self.preprocessing.picture(path)), label
        except FileError as error:
            warn(f"skipped: {error}")
            return None

    def share(self, rank: int, count: int) -> ImageFolder:
        """The images of one of `count` ranks: every `count`-th."""
        shared = copy.copy(self)
        shared.files = self.files[rank::count]
        return shared

    def spread(self, count: int) -> ImageFolder:
        """At most `count` images, evenly spaced: the first ones of class folders would all be of one class."""
        return self.share(0, -(-len(self) // count))

    def summary(self) -> dict[str, Any]:
        """Number of files, a hash of their names, and hashes of names with contents of some files.

        Those with the smallest hashes of names are used, so that two folders that share files share hashes.
        """
        names = [
            os.fsencode(path.relative_to(self.folder) if label is None else f"{self.classes[label]}/{path.name}")
            for path, label in self.files
        ]
        hashed = sorted((_hash(name), path) for name, (path, _) in zip(names, self.files, strict=True))
        some = [_hash(name.encode() + _content(path)) for name, path in hashed[:_HASHED]]
        return {"count": len(names), "names": _hash(b"\0".join(names)), "some": some}

    def batches(self, batch_size: int, workers: int = 0) -> Batches:
        """Batches in order, without unreadable images."""
        return Batches(DataLoader(self, batch_size, num_workers=workers, collate_fn=_stack_readable))

    def batches_with_paths(self, batch_size: int) -> Batches:
        """Batches in order as dicts of images, labels and paths, without unreadable images."""
        return Batches(DataLoader(_WithPaths(self), batch_size, collate_fn=_stack_with_paths))


def load_some(folder: Path, preprocessing: Preprocessing, most: int) -> Tensor:
    """At most `most` images (N,C,H,W) below a folder, evenly spaced. Unreadable ones are skipped with a warning."""
    images = ImageFolder(folder, preprocessing).spread(most)
    readable = [inputs for inputs, _ in images.batches(_READ_TOGETHER)]
    if not readable:
        raise InputError(f"none of {len(images)} files in {folder} could be read as an image: pass another folder")
    return torch.cat(readable)


class ClassFolders(ImageFolder):
    """Images of a folder with a folder per class. A class's index is the position of its folder by name."""

    def _classes(self) -> list[str]:
        return class_folders(self.folder)

    def _files(self) -> list[tuple[Path, int | None]]:
        return [(path, index) for index, name in enumerate(self.classes) for path in image_files(self.folder / name)]

    def _empty(self) -> str:
        return f"{self.folder} has no images in class folders: put them in {self.folder}/CLASS/NAME.png"

    def with_classes(self, names: Sequence[str], count: int) -> ClassFolders:
        """The images labelled by `folder_classes`. Raises InputError if one is in a folder that isn't a class."""
        index = folder_classes(self.classes, names, count)
        folders = {self.classes[label] for _, label in self.files if label is not None}
        unknown = sorted(folders - index.keys())
        if unknown:
            raise InputError(
                f"{unknown[0]} isn't one of the model's classes ({', '.join(names[:5])}): rename it, or change --names"
            )
        labelled = copy.copy(self)
        labelled.files = [(path, index[self.classes[label]]) for path, label in self.files if label is not None]
        labelled.classes = list(names) or self.classes
        return labelled


class _WithPaths(Dataset[tuple[Tensor, int | None, str] | None]):
    """The images of a folder with their paths."""

    def __init__(self, folder: ImageFolder) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, index: int) -> tuple[Tensor, int | None, str] | None:
        sample = self._folder[index]
        return None if sample is None else (*sample, str(self._folder.files[index][0]))


@dataclass(frozen=True)
class Batches:
    """Batches of a loader, without those in which no image was readable."""

    loader: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch in self.loader if batch is not None)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _content(path: Path) -> bytes:
    """Bytes of a file; empty if unreadable, which is reported when the image itself is read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _stack_readable(samples: list[tuple[Tensor, int | None] | None]) -> tuple[Tensor, Tensor | None] | None:
    readable = [sample for sample in samples if sample is not None]
    if not readable:
        return None
    images, labels = zip(*readable, strict=True)
    return torch.stack(images), None if labels[0] is None else torch.tensor(labels)


def _stack_with_paths(samples: list[tuple[Tensor, int | None, str] | None]) -> dict[str, Any] | None:
    readable = [sample for sample in samples if sample is not None]
    batch = _stack_readable([sample[:2] for sample in readable])
    return batch and {"images": batch[0], "labels": batch[1], "paths": [path for _, _, path in readable]}
