"""Where the official files are: a folder, folders in it, or the two archives, of which nothing is unpacked."""

from __future__ import annotations

import json
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from agop.errors import FileError
from agop.system.files import read_bytes

ARCHIVES = ("CLEVR-XAI_v1.0.zip", "CLEVR-XAI_v1.0_images_masks.zip")
PAGE = "https://github.com/ahmedmagdiosman/clevr-xai/releases"
NEXT_STEP = f"download {' and '.join(ARCHIVES)} from {PAGE} into one folder, and give that folder"


class Damaged(FileError):
    """One file of the release that cannot be read; the others may be whole."""


class Files:
    """The release's files by their official names, such as images/CLEVR_unique_000000.png."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileError(f"{path} is not there: {NEXT_STEP}")
        if path.is_file() and path.suffix.lower() != ".zip":
            raise FileError(f"{path} is neither a folder nor a zip archive: {NEXT_STEP}")
        self.path = path
        self._folders = _folders(path) if path.is_dir() else []
        beside = path if path.is_dir() else path.parent
        archives = [path] * path.is_file() + sorted(beside.glob("CLEVR-XAI*.zip"))
        self._archives = [_Archive(archive) for archive in dict.fromkeys(archives)]

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None if there is no such file."""
        for folder in self._folders:
            if (folder / name).is_file():
                return _read(folder / name)
        for archive in self._archives:
            if name in archive.members:
                return archive.read(name)
        return None

    def records(self, name: str, key: str) -> list[dict[str, Any]]:
        """The scenes or questions of one of the official JSON files."""
        content = self.read(name)
        if content is None:
            raise FileError(f"{self.path} holds no {name}: {NEXT_STEP}")
        try:
            read = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{name} in {self.path} is not whole JSON ({error}): get it again from {PAGE}") from error
        records = read.get(key) if isinstance(read, dict) else read
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise FileError(f"{name} in {self.path} has no list of {key}: get it again from {PAGE}")
        return records


def _folders(path: Path) -> list[Path]:
    """The folder and those in it: the archives may have been unpacked into one of their own."""
    try:
        return [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileError as error:
        raise Damaged(str(error)) from error


class _Archive:
    """A zip archive, opened when first asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _zip(self) -> ZipFile:
        try:
            return ZipFile(self.path)
        except (BadZipFile, OSError) as error:
            raise FileError(f"{self.path} is not a whole zip archive ({error}): get it again from {PAGE}") from error

    @cached_property
    def members(self) -> dict[str, ZipInfo]:
        """The members under their official names, whatever folder they were packed in."""
        members: dict[str, ZipInfo] = {}
        for info in self._zip.infolist():
            parts = info.filename.split("/")
            members.setdefault("/".join(parts[-1:] if parts[-1].startswith("CLEVR-XAI_") else parts[-2:]), info)
        return members

    def read(self, name: str) -> bytes:
        """A member's bytes."""
        try:
            return self._zip.read(self.members[name])
        # An encrypted member is a RuntimeError, an unknown compression a NotImplementedError, which is one, too.
        except (BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
            raise Damaged(f"could not read {name} from {self.path}: {error}") from error
