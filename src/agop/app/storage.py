"""The folder of uploads and downloads: old entries are removed, and the oldest ones make room for new uploads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_STORED_BYTES = 2 * 2**30
_KEPT_SECONDS = 6 * 60 * 60
# A waiting request may still need an upload of this age.
_NEEDED_SECONDS = 10 * 60


@dataclass(frozen=True)
class _Entry:
    """A file or a folder in the storage, with its bytes and its age in seconds."""

    path: Path
    size: int
    age: float

    def remove(self) -> None:
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(OSError):
                self.path.unlink()


class Storage:
    """Files of a server below a folder, except those in `fixed`. Other threads may add and rename files at any time."""

    def __init__(self, folder: Path, fixed: str, most_bytes: int = MOST_STORED_BYTES) -> None:
        self.folder, self._fixed, self.most_bytes = folder, fixed, most_bytes

    def forget(self, seconds: float = _KEPT_SECONDS) -> None:
        """Remove entries older than `seconds`."""
        for entry in self._entries():
            if entry.age > seconds:
                entry.remove()

    def make_room(self, size: int, needed_seconds: float = _NEEDED_SECONDS) -> bool:
        """True if `size` more bytes fit. If they don't, the oldest entries that no request needs are removed."""
        entries = sorted(self._entries(), key=lambda entry: entry.age)
        stored = sum(entry.size for entry in entries)
        if size > self.most_bytes:
            return False
        while stored + size > self.most_bytes and entries and entries[-1].age > needed_seconds:
            oldest = entries.pop()
            oldest.remove()
            stored -= oldest.size
        return stored + size <= self.most_bytes

    def remove_unfinished(self) -> None:
        """Remove unfinished uploads. Gradio writes an upload to a file, which it moves to a folder in the end."""
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[_Entry]:
        for path in self.folder.iterdir():
            if path.name == self._fixed:
                continue
            with suppress(FileNotFoundError):  # moved or removed by another request
                stats = [file.stat() for file in (path, *path.rglob("*"))]
                age = time.time() - max(stat.st_mtime for stat in stats)
                yield _Entry(path, sum(stat.st_size for stat in stats), age)
