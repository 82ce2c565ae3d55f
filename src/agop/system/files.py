"""Files that are either whole or not there: written beside, then renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agop.errors import FileError


def write_atomically(path: Path, content: bytes) -> None:
    """Write the file, or leave the one that was there; a reader never sees half of it."""
    temporary = ""
    try:
        real = path.resolve()  # through a link, not over it
        if real.exists() and not real.is_file():
            raise OSError("it is there and is not a file")
        real.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=real.parent, prefix=".agop-", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, real)
    except (OSError, ValueError) as error:
        old = "; the file that was there is unchanged" if temporary and path.exists() else ""
        raise FileError(f"could not write {path}: {getattr(error, 'strerror', None) or error}{old}") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def read_bytes(path: Path) -> bytes:
    """The file's bytes."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(f"could not read {path}: {getattr(error, 'strerror', None) or error}") from error


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
