"""Image files and class folders below a folder. Links are followed, as torchvision's ImageFolder does."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from agop.errors import FileError, warn
from agop.pictures.explanation_outputs import is_overlay_folder
from agop.pictures.formats import SUFFIXES

Skip = Callable[[str], None]


def warn_skipped(message: str) -> None:
    """Warn about a file or folder that is skipped."""
    warn(f"skipped: {message}")


def image_files(folder: Path, skip: Skip = warn_skipped) -> list[Path]:
    """Image files below a folder, sorted by path, without hidden ones and overlays of an earlier explanation.

    `skip` gets a message for each folder or link that can't be read, and for each link to a folder that contains it.
    """
    return sorted(_images(folder, skip, {}))


def class_folders(folder: Path) -> list[str]:
    """Sorted names of the folders in a folder, without hidden ones and overlays of an explanation."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise FileError(f"{folder} can't be read: {error.strerror}") from error
    folders = (child for child in children if os.path.isdir(child) and not is_overlay_folder(child))
    return [child.name for child in folders if not child.name.startswith(".")]


def _images(folder: Path, skip: Skip, above: dict[tuple[int, int], Path]) -> Iterator[Path]:
    """Images below a folder. `above` has the folders on the way to it, by device and inode."""
    try:
        status = os.stat(folder)
        names = os.listdir(folder)
    except OSError as error:
        skip(f"the folder {folder} can't be read: {error.strerror}")
        return
    inside = above | {(status.st_dev, status.st_ino): folder}
    for path in (folder / name for name in names if not name.startswith(".")):
        try:
            status = os.stat(path)
        except OSError as error:
            if path.suffix.lower() in SUFFIXES or not path.suffix:  # an image or a folder, if it could be read
                skip(f"{path} can't be read: {'broken link' if os.path.islink(path) else error.strerror}")
            continue
        if stat.S_ISREG(status.st_mode) and path.suffix.lower() in SUFFIXES:
            yield path
        elif stat.S_ISDIR(status.st_mode) and not is_overlay_folder(path):
            loop = inside.get((status.st_dev, status.st_ino))
            if loop is None:
                yield from _images(path, skip, inside)
            else:
                skip(f"{path} is a link to {loop}, which contains it")
