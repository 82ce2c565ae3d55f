"""Locks between processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

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
