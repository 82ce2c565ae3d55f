"""JSON files of a run folder with a checksum of their content: a damaged or edited file is never believed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from agop.errors import FileError
from agop.system.files import read_bytes, write_atomically
from agop.system.typed_json import convert, parse

T = TypeVar("T")
_KEY = "checksum"


def write_record(path: Path, values: dict[str, Any]) -> None:
    """Write the values and their checksum."""
    write_atomically(path, json.dumps(values | {_KEY: _digest(values)}, indent=1).encode())


def read_record(path: Path, kind: type[T], fix: str) -> T:
    """The file as a dataclass. Raises FileError, with this fix, if it was changed or has wrong types."""
    values = read_values(path, fix)
    try:
        if values.pop(_KEY, None) != _digest(values):
            raise ValueError("its checksum doesn't match")
        return convert(kind, values, path.stem)  # type: ignore[no-any-return]
    except ValueError as error:
        raise damaged(path, error, fix) from error


def read_values(path: Path, fix: str) -> dict[str, Any]:
    """The unchecked values of a JSON file, by name. Raises FileError."""
    try:
        values = parse(read_bytes(path))
        if type(values) is not dict:
            raise ValueError("it isn't a JSON object")
    except ValueError as error:
        raise damaged(path, error, fix) from error
    return values


def damaged(path: Path, error: Exception, fix: str) -> FileError:
    """The error for a file with unexpected content."""
    return FileError(f"{path} is damaged ({error}): {fix}")


def digest(content: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(content).hexdigest()


def _digest(values: dict[str, Any]) -> str:
    return digest(json.dumps(values, sort_keys=True).encode())
