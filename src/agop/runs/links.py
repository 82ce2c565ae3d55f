"""Run folders from elsewhere: agop never writes links, and doesn't follow them."""

from __future__ import annotations

import os
from pathlib import Path

from agop.errors import FileError


def refuse_links(folder: Path) -> None:
    """Raise FileError for a link or device anywhere in the folder: it may lead to private files, or never end."""
    waiting = [str(folder)]
    while waiting:
        for entry in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                kind = "a link" if entry.is_symlink() else "not a regular file"
                raise FileError(f"{entry.path} is {kind}: replace it by the file itself, or run again")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # a bench that is running has renamed it
        return []
    except OSError as error:
        raise FileError(f"could not read {folder}: {error.strerror}") from error
