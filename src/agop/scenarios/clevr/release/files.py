"""Files of the official release: in a folder, in its subfolders, or in the two zip archives, read without unpacking."""

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
NEXT_STEP = f"download {' and '.join(ARCHIVES)} from {PAGE} into one folder, and pass that folder"
_AGAIN = f"download it again from {PAGE}"


class CorruptFile(FileError):
    """One file of the release that can't be read. The others may be fine."""


class Files:
    """Access to the release's files by their official names, such as images/CLEVR_unique_000000.png."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileError(f"{path} doesn't exist: {NEXT_STEP}")
        if path.is_file() and path.suffix.lower() != ".zip":
            raise FileError(f"{path} is neither a folder nor a zip archive: {NEXT_STEP}")
        self.path = path
        self._folders = _folders(path) if path.is_dir() else []
        archives = sorted((path if path.is_dir() else path.parent).glob("CLEVR-XAI*.zip"))
        if path.is_file():
            archives.insert(0, path)
        self._archives = [_Archive(archive) for archive in dict.fromkeys(archives)]

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if the release has no such file."""
        for folder in self._folders:
            if (folder / name).is_file():
                return _read(folder / name)
        for archive in self._archives:
            if name in archive.members:
                return archive.read(name)
        return None

    def records(self, name: str, key: str) -> list[dict[str, Any]]:
        """The scenes or questions of an official JSON file."""
        content = self.read(name)
        if content is None:
            raise FileError(f"{self.path} has no {name}: {NEXT_STEP}")
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{name} in {self.path} is not valid JSON ({error}): {_AGAIN}") from error
        records = parsed.get(key) if isinstance(parsed, dict) else parsed
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise FileError(f"{name} in {self.path} has no list of {key}: {_AGAIN}")
        return records


def _folders(path: Path) -> list[Path]:
    """The folder and its subfolders: an archive may have been unpacked into a subfolder."""
    try:
        return [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    except OSError as error:
        raise FileError(f"could not read {path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileError as error:
        raise CorruptFile(str(error)) from error


class _Archive:
    """A zip archive, opened on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _zip(self) -> ZipFile:
        try:
            return ZipFile(self.path)
        except (BadZipFile, OSError) as error:
            raise FileError(f"{self.path} is not a valid zip archive ({error}): {_AGAIN}") from error

    @cached_property
    def members(self) -> dict[str, ZipInfo]:
        """The members by their official names, without the folder they were packed in."""
        members: dict[str, ZipInfo] = {}
        for info in self._zip.infolist():
            parts = info.filename.split("/")
            members.setdefault("/".join(parts[-1:] if parts[-1].startswith("CLEVR-XAI_") else parts[-2:]), info)
        return members

    def read(self, name: str) -> bytes:
        """A member's content."""
        try:
            return self._zip.read(self.members[name])
        # RuntimeError: an encrypted member, or (NotImplementedError) an unknown compression.
        except (BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
            raise CorruptFile(f"could not read {name} from {self.path}: {error}") from error
