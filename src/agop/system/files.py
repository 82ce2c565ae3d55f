"""Read and write whole files: a write goes to a temporary file, which is then renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agop.errors import FileError


def write_atomically(path: Path, content: bytes) -> None:
    """Write the file, or leave the existing one unchanged. Readers never see a partial file."""
    temporary = ""
    try:
        target = path.resolve()  # write through a link instead of replacing it
        if target.exists() and not target.is_file():
            raise OSError("it exists but is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".agop-", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
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
