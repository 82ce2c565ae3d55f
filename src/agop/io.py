"""Files: which may be written, atomic writes, locks between processes, versions of packages."""

import json
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from agop.errors import FileError, InputError

MARKER = ".agop"


def own_folder(folder: Path, *, force: bool = False) -> None:
    """Create the folder with a marker file, or raise InputError if the existing folder has files of somebody else.

    Folders that are new, empty or marked may be written. With `force` others too, but they aren't marked.
    """
    with _errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        own = (folder / MARKER).exists() or not any(folder.iterdir())
        if own:
            (folder / MARKER).touch()
    if not own and not force:
        raise InputError(
            f"{folder} already exists and has files that agop didn't write: choose another folder with --out, or pass "
            "--force (force=True) to write into it anyway"
        )


def check_overwrites(
    outputs: Iterable[Path],
    inputs: Iterable[Path | None],
    *,
    own: bool = False,
    force: bool = False,
    option: str = "--out",
) -> None:
    """Raise InputError if an output would replace an input or, unless `own` or `force`, any existing file.

    A file in a folder that is an input counts as an input, unless it is agop's `own`. Call this before the work.
    """
    existing = [path for path in outputs if os.path.lexists(path)]
    read = {_identity(path) for path in inputs if path is not None and path.exists()} if existing else set()
    for path in existing:
        if path.exists() and _identity(path) in read:
            raise InputError(f"{path} is one of the inputs and would be overwritten: choose another {option}")
        if not own and any(_identity(folder) in read for folder in path.resolve().parents if folder.exists()):
            raise InputError(f"{path} is in an input folder and would be overwritten: choose another {option}")
        if not own and not force:
            raise InputError(f"{path} already exists: choose another {option}, or pass --force to overwrite it")


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
        os.umask(mask := os.umask(0))  # the process's umask can only be read by setting it
        os.chmod(temporary, 0o666 & ~mask)
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
        with _errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=path.parent, prefix=".agop-", suffix=".part")  # noqa: SIM115
        weakref.finalize(self, _close, self._file)

    def append(self, content: bytes) -> int:
        """Add the content. Returns its position."""
        with _errors("write", self._path):
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


def _close(file: IO[bytes]) -> None:
    """Close a file whose content isn't needed any more: on a full disk, the last bytes can't be written."""
    with suppress(OSError):
        file.close()


@contextmanager
def _errors(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise FileError(f"could not {verb} {path}: {_reason(error)}") from error


def read_bytes(path: Path) -> bytes:
    """Content of the file. Raises FileError."""
    with _errors("read", path):
        return path.read_bytes()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. A killed process releases it. Raises FileError if another one holds it.

    Where files can't be locked (a read-only folder, some network disks), nothing is locked.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FileError(
            f"{path.parent} is in use by another process: wait until it ends, or choose another folder"
        ) from None
    except (OSError, NotImplementedError):
        pass
    try:
        yield
    finally:
        lock.release()


def safetensors_metadata(content: bytes) -> dict[str, str]:
    """Metadata of the content of a safetensors file. Raises KeyError if it has none."""
    # The header is a length and a JSON object.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header["__metadata__"])


@cache
def package_version(name: str = "agop") -> str:
    """The installed version; "unknown" for a checkout that is on the path without being installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
