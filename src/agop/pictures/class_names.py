"""Names of a model's classes: from a file, its prior, its config, or "class 0", "class 1", …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from agop.errors import FileError, InputError, warn
from agop.registry import unknown_name_error
from agop.statistic.agop import AGOP


def class_names(
    prior: AGOP | None, file: Path | None = None, count: int | None = None, model: nn.Module | None = None
) -> tuple[str, ...]:
    """Names from a text file (one per line), else from the prior, else from the model; empty if none has one per class.

    `count` is the number of classes of the model, if known.
    """
    if file is not None:
        names = _read_names(file)
        if count is not None and len(names) != count:
            raise InputError(f"{file} has {len(names)} class names, the model {count} classes: write one name per line")
        return names
    for names in (() if prior is None else prior.class_names, _own_names(model)):
        if names and count in (None, len(names)):
            return names
    return ()


def _own_names(model: nn.Module | None) -> tuple[str, ...]:
    """The names in a Hugging Face model's `config.id2label`, unless they are its placeholders LABEL_0, LABEL_1 …"""
    labels = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(labels, Mapping) or set(labels) != set(range(len(labels))):
        return ()
    names = tuple(str(labels[index]) for index in range(len(labels)))
    return () if names == tuple(f"LABEL_{index}" for index in range(len(names))) else names


def class_index(name: str, names: Sequence[str]) -> int:
    """The class with that name, or with that number. Raises UnknownNameError or InputError."""
    named = [index for index, other in enumerate(names) if other == name]
    if len(named) > 1:
        raise InputError(f"{len(named)} classes are named {name!r}: give a number, {', '.join(map(str, named))}")
    number = int(name) if name.isascii() and name.isdigit() else None
    if named and number not in (None, named[0]):
        warn(f"target {name} is the class named {name!r}, which has the number {named[0]}")
    if named:
        return named[0]
    if number is None:
        raise unknown_name_error("class", name, names or ["0", "1", "2 …"])
    return number


def folder_classes(folders: Sequence[str], names: Sequence[str], count: int) -> dict[str, int]:
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
