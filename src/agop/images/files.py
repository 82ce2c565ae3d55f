"""Image files and folders, and the names of their classes."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from agop.errors import FileError, InputError, warn
from agop.images.preprocessing import SUFFIXES, Preprocessing
from agop.prior.agop import AGOP
from agop.registry import unknown_name_error

# In a folder of explanations: what is in it, and a folder with a picture per image.
MANIFEST, OVERLAYS = "manifest.json", "overlays"
Skip = Callable[[str], None]
_READ_TOGETHER = 32


def image_files(folder: Path, skip: Skip = lambda message: warn(f"skipped: {message}")) -> list[Path]:
    """Image files below a folder, sorted by path, without hidden ones and overlays of an earlier explanation.

    `skip` gets a message for each folder or link that can't be read, and for each link to a folder that contains it.
    """

    def skip_folder(error: OSError) -> None:
        skip(f"the folder {error.filename} can't be read: {error.strerror}")

    files = []
    for place, folders, names in os.walk(folder, onerror=skip_folder, followlinks=True):
        here = Path(place)
        above = {parent.resolve() for parent in (here, *here.parents)}
        for path in [here / name for name in folders]:
            loop = path.resolve() if path.is_symlink() else None
            if path.name.startswith(".") or _are_overlays(path) or loop in above:
                folders.remove(path.name)
                if loop in above and not path.name.startswith("."):
                    skip(f"{path} is a link to {loop}, which contains it")
        for path in (here / name for name in names if not name.startswith(".")):
            if path.suffix and path.suffix.lower() not in SUFFIXES:
                continue
            try:
                if stat.S_ISREG(os.stat(path).st_mode) and path.suffix:
                    files.append(path)
            except OSError as error:
                skip(f"{path} can't be read: {'broken link' if os.path.islink(path) else error.strerror}")
    return sorted(files)


def earlier_overlays(folder: Path) -> set[str]:
    """Names of the overlays that an earlier explanation in the folder wrote, by its manifest."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        names, overlays = manifest["outputs"] if "agop" in manifest else [], (folder / OVERLAYS).resolve()
        return {name for name in names if (folder / name).resolve().is_relative_to(overlays)}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # a manifest of another program
        return set()


def _are_overlays(path: Path) -> bool:
    """True for the overlays of an explanation: they aren't images to explain."""
    return path.name == OVERLAYS and bool(earlier_overlays(path.parent))


def class_folders(folder: Path) -> list[str]:
    """Sorted names of the folders in a folder, without hidden ones and overlays of an explanation."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise FileError(f"{folder} can't be read: {error.strerror}") from error
    folders = (child for child in children if os.path.isdir(child) and not _are_overlays(child))
    return [child.name for child in folders if not child.name.startswith(".")]


def class_names(
    prior: AGOP | None, file: Path | None = None, count: int | None = None, model: nn.Module | None = None
) -> tuple[str, ...]:
    """Names from a text file (one per line), else from the prior, else from the model; empty if none has one per class.

    `count` is the number of classes of the model, if known.
    """
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise FileError(
                f"can't read class names from {file} ({error}): pass a text file, one name per line"
            ) from error
        names = tuple(line.strip() for line in lines if line.strip())
        if count is not None and len(names) != count:
            raise InputError(f"{file} has {len(names)} class names, the model {count} classes: write one name per line")
        return names
    for names in (() if prior is None else prior.class_names, _own_names(model)):
        if names and count in (None, len(names)):
            return names
    return ()


def _own_names(model: nn.Module | None) -> tuple[str, ...]:
    """The names in a Hugging Face model's `config.id2label`, unless they are its placeholders LABEL_0, LABEL_1 …"""
    labels = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(labels, Mapping) or set(labels) != set(range(len(labels))):
        return ()
    names = tuple(str(labels[index]) for index in range(len(labels)))
    return () if names == tuple(f"LABEL_{index}" for index in range(len(names))) else names


def class_index(name: str, names: Sequence[str]) -> int:
    """The class with that name, or with that number. Raises UnknownNameError or InputError."""
    named = [index for index, other in enumerate(names) if other == name]
    if len(named) > 1:
        raise InputError(f"{len(named)} classes are named {name!r}: give a number, {', '.join(map(str, named))}")
    number = int(name) if name.isascii() and name.isdigit() else None
    if named and number not in (None, named[0]):
        warn(f"target {name} is the class named {name!r}, which has the number {named[0]}")
    if named:
        return named[0]
    if number is None:
        raise unknown_name_error("class", name, names or ["0", "1", "2 …"])
    return number


def folder_classes(folders: Sequence[str], names: Sequence[str], count: int) -> dict[str, int]:
    """Class index by class folder: that of the class with the folder's name, or without names the folder's position.

    A folder that isn't a class has none. Positions are used only if there is a folder for each of `count` classes.
    """
    if names:
        for name in folders:
            if names.count(name) > 1:
                raise InputError(f"{names.count(name)} classes are named {name}: use a name for one class only")
        return {name: names.index(name) for name in folders if name in names}
    if len(folders) != count:
        listed = f"{', '.join(folders[:5])}{' …' if len(folders) > 5 else ''}"
        raise InputError(
            f"the model has {count} classes, but the images have folders for {len(folders)} ({listed}): pass --names "
            "FILE, the names of the model's classes in order, one per line"
        )
    return {name: index for index, name in enumerate(folders)}


def class_name(names: Sequence[str], index: int) -> str:
    """Name of one class; "class 3" if it has no name."""
    return names[index] if index < len(names) else f"class {index}"


class ImageFolder(Dataset[tuple[Tensor, int | None, str] | None]):
    """Images below a folder, without labels. Each item is the input, the label or None, and the path."""

    _hint = "images: pass another folder"

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: pass a folder of images")
        self.folder, self.preprocessing = folder, preprocessing
        self.classes, self.files = self._found()
        if not self.files:
            raise InputError(f"{folder} has no {self._hint.format(folder=folder)}")

    def _found(self) -> tuple[list[str], list[tuple[Path, int | None]]]:
        """The classes, and path and label of each image."""
        return [], [(path, None) for path in image_files(self.folder)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int | None, str] | None:
        """Input, label and path of an image; None, with a warning, if it can't be read."""
        path, label = self.files[index]
        try:
            return self.preprocessing.tensor(self.preprocessing.picture(path)), label, str(path)
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
        """Number of files, and a hash of their names."""
        names = [
            os.fsencode(path.relative_to(self.folder) if label is None else f"{self.classes[label]}/{path.name}")
            for path, label in self.files
        ]
        return {"count": len(names), "names": hashlib.sha256(b"\0".join(names)).hexdigest()[:16]}

    def batches(self, batch_size: int, workers: int = 0, **options: Any) -> Batches:
        """Batches of images and labels in order, without unreadable images. The options are fields of `Batches`."""
        return Batches(DataLoader(self, batch_size, num_workers=workers, collate_fn=_stacked), **options)


@dataclass(frozen=True)
class Batches:
    """Batches of a loader, without those in which no image was readable; as dicts with paths if asked for.

    `at_end` is called after the last batch.
    """

    loader: DataLoader[Any]
    with_paths: bool = False
    at_end: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            if batch is not None:
                yield batch if self.with_paths else (batch["images"], batch["labels"])
        self.at_end()


def _stacked(samples: list[tuple[Tensor, int | None, str] | None]) -> dict[str, Any] | None:
    readable = [sample for sample in samples if sample is not None]
    if not readable:
        return None
    images, labels, paths = zip(*readable, strict=True)
    labelled = None if labels[0] is None else torch.tensor(labels)
    return {"images": torch.stack(images), "labels": labelled, "paths": list(paths)}


def load_some(folder: Path, preprocessing: Preprocessing, most: int) -> Tensor:
    """At most `most` images (N,C,H,W) below a folder, evenly spaced. Unreadable ones are skipped with a warning."""
    images = ImageFolder(folder, preprocessing).spread(most)
    readable = [inputs for inputs, _ in images.batches(_READ_TOGETHER)]
    if not readable:
        raise InputError(f"none of {len(images)} files in {folder} could be read as an image: pass another folder")
    return torch.cat(readable)


class ClassFolders(ImageFolder):
    """Images of a folder with a folder per class. A class's index is the position of its folder by name."""

    _hint = "images in class folders: put them in {folder}/CLASS/NAME.png"

    def _found(self) -> tuple[list[str], list[tuple[Path, int | None]]]:
        names = class_folders(self.folder)
        return names, [(path, index) for index, name in enumerate(names) for path in image_files(self.folder / name)]

    def with_classes(self, names: Sequence[str], count: int) -> ClassFolders:
        """The images labelled by `folder_classes`. Raises InputError if one is in a folder that isn't a class."""
        index = folder_classes(self.classes, names, count)
        folders = {self.classes[label] for _, label in self.files if label is not None}
        if unknown := sorted(folders - index.keys()):
            raise InputError(
                f"{unknown[0]} isn't one of the model's classes ({', '.join(names[:5])}): rename it, or change --names"
            )
        labelled = copy.copy(self)
        labelled.files = [(path, index[self.classes[label]]) for path, label in self.files if label is not None]
        labelled.classes = list(names) or self.classes
        return labelled
