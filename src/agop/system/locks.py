"""Locks between processes. The system releases the lock of a process that ends, also if it's killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from agop.errors import FileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; wait for the process that holds it. A killed process releases it.

    Nothing is locked where that's impossible (Windows, read-only folders, some network disks): the lock saves
    repeated work, correctness must not depend on it.
    """
    with ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context(path.open("wb")), fcntl.LOCK_EX)
        yield


@contextmanager
def owned_lock(path: Path, owner: str) -> Iterator[None]:
    """Hold an exclusive lock on a file and write `owner` into it.

    Raises FileError, with the first line of the owner, if another process holds the lock.
    Where locks are impossible (Windows, some network disks), nothing is locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise FileError(f"could not write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.readline().decode(errors="replace").strip() or "another process"
            raise FileError(
                f"{path.parent} is in use by {holder}: wait until it ends, or choose another folder"
            ) from None
        except OSError:
            pass  # a disk without locks
        file.truncate()
        file.write(owner.encode(errors="replace"))
        file.flush()
        yield
