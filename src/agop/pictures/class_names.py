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


def class_indices(folders: Sequence[str], names: Sequence[str], count: int) -> dict[str, int]:
    """Class index by class folder: that of the class with the folder's name, or without names the folder's position.

    A folder that isn't a class has none. Positions are used only if there is a folder for each of `count` classes.
    """
    if names:
        for name in folders:
            if names.count(name) > 1:
                raise InputError(f"{names.count(name)} classes are named {name}: use a name for one class only")
        return {name: names.index(name) for name in folders if name in names}
    if len(folders) != count:
        listed = f"{', '.join(folders[:5])}{' …' if len(folders) > 5 else ''}"
        raise InputError(
            f"the model has {count} classes, but the images have folders for {len(folders)} ({listed}): pass --names "
            "FILE, the names of the model's classes in order, one per line"
        )
    return {name: index for index, name in enumerate(folders)}


def class_name(names: Sequence[str], index: int) -> str:
    """Name of one class; "class 3" if it has no name."""
    return names[index] if index < len(names) else f"class {index}"


def _read_names(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"can't read class names from {file} ({error}): pass a text file, one name per line") from error
    return tuple(line.strip() for line in lines if line.strip())
