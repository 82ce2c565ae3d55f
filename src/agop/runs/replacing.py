"""Replace a run: the new one is written inside its folder, then moved into place. After a kill, one is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agop.errors import FileError
from agop.runs.links import refuse_links
from agop.system.locks import file_lock

UNFINISHED = ".new.part"
_NEW, _LOCK, _SPEC = ".new", "lock", "spec.json"


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """A folder to write a run into. When the block has ended, its files replace those of the run in `folder`."""
    part = folder / UNFINISHED
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(folder / _NEW, ignore_errors=True)
    part.rename(folder / _NEW)  # from here on, the new run counts
    finish_replacing(folder)


def finish_replacing(folder: Path) -> None:
    """Move a new run into place, if one is complete. Other files in the folder are kept, except the old report."""
    if not _is_complete(folder / _NEW):
        return
    refuse_links(folder)
    try:
        with file_lock(folder / _NEW / _LOCK):
            if _is_complete(folder / _NEW):  # otherwise another process has just moved it
                _move(folder / _NEW, folder)
        shutil.rmtree(folder / _NEW, ignore_errors=True)
    except OSError as error:
        raise FileError(f"could not replace the run in {folder}: {error.strerror or error}") from error


def _is_complete(new: Path) -> bool:
    return not new.is_symlink() and (new / _SPEC).is_file()


def _move(new: Path, folder: Path) -> None:
    """Move all files of a new run into place. spec.json is the last one: until then, the new run counts as complete."""
    (folder / "index.html").unlink(missing_ok=True)
    for name in [*sorted(set(os.listdir(new)) - {_SPEC, _LOCK}), _SPEC]:
        old = folder / name
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        os.replace(new / name, old)
