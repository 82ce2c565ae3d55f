"""Read and write whole files: a write goes to a temporary file, which is then renamed."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agop.errors import FileError, InputError


def check_overwrites(
    outputs: Iterable[Path], inputs: Iterable[Path | None], is_own: Callable[[Path], bool], *, force: bool = False
) -> None:
    """Raise InputError if an output would replace an input or, unless `force`, an existing file that isn't agop's own.

    A file in a folder that is an input counts as an input, unless it is agop's own. Call this before the work.
    """
    existing = [path for path in outputs if os.path.lexists(path)]
    read = {_identity(path) for path in inputs if path is not None and path.exists()} if existing else set()
    for path in existing:
        if path.exists() and _identity(path) in read:
            raise InputError(f"{path} is one of the inputs and would be overwritten: choose another --out")
        if is_own(path):
            continue
        if any(_identity(folder) in read for folder in path.resolve().parents if folder.exists()):
            raise InputError(f"{path} is in an input folder and would be overwritten: choose another --out")
        if not force:
            raise InputError(
                f"{path} already exists and isn't a result of this command: choose another --out, or pass --force to "
                "overwrite it"
            )


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: the same for all names of a file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write the file, or leave the existing one unchanged. Readers never see a partial file.

    Content in parts doesn't have to fit into memory.
    """
    temporary = ""
    try:
        target = path.resolve()  # write through a link instead of replacing it
        if target.exists() and not target.is_file():
            raise OSError("it exists but is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".agop-", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        unchanged = "; the existing file is unchanged" if temporary and path.exists() else ""
        raise FileError(f"could not write {path}: {_reason(error)}{unchanged}") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


class Spool:
    """Bytes for a part of `path`, kept on its disk instead of in memory. They vanish with the object or the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=path.parent, prefix=".agop-", suffix=".part")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, content: bytes) -> int:
        """Add the content. Returns its position."""
        with _write_errors(self._path):
            position = self._file.seek(0, os.SEEK_END)
            self._file.write(content)
        return position

    def read(self, position: int, length: int) -> bytes:
        """Content from a position on."""
        self._file.seek(position)
        return self._file.read(length)

    def parts(self) -> Iterator[bytes]:
        """All content, in parts of 256 kB."""
        self._file.seek(0)
        return iter(lambda: self._file.read(2**18), b"")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise FileError(f"could not write {path}: {_reason(error)}") from error


def read_bytes(path: Path) -> bytes:
    """Content of the file. Raises FileError."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(f"could not read {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _umask() -> int:
    """The process's umask. It can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
