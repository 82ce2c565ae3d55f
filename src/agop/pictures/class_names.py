"""Names of a model's classes: from a file, from its prior, or "class 0", "class 1", …"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agop.errors import FileError, InputError
from agop.statistic.agop import AGOP


def class_names(prior: AGOP | None, file: Path | None = None, count: int | None = None) -> tuple[str, ...]:
    """Names from a text file (one per line), else from the prior; empty if neither has one per class.

    `count` is the number of classes of the model, if known.
    """
    if file is not None:
        names = _read_names(file)
        if count is not None and len(names) != count:
            raise InputError(f"{file} has {len(names)} class names, the model {count} classes: write one name per line")
        return names
    names = () if prior is None else prior.class_names
    return names if count is None or len(names) == count else ()


def class_name(names: Sequence[str], index: int) -> str:
    """Name of one class; "class 3" if it has no name."""
    return names[index] if index < len(names) else f"class {index}"


def _read_names(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"can't read class names from {file} ({error}): pass a text file, one name per line") from error
    return tuple(line.strip() for line in lines if line.strip())
