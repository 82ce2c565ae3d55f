"""JSON files of a run folder with a checksum of their content: a damaged or edited file is never believed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from reprlib import repr as short
from typing import Any, NoReturn, TypeVar

from agop.errors import FileError
from agop.system.files import read_bytes, write_atomically
from agop.system.typed_json import from_json

T = TypeVar("T")
# Sums and squares of such numbers are finite.
LARGEST, _LARGEST_INTEGER = 1e100, 2**53
_KEY = "checksum"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def write_record(path: Path, values: dict[str, Any]) -> None:
    """Write the values and their checksum."""
    write_atomically(path, json.dumps(values | {_KEY: _digest(values)}, indent=1).encode())


def read_record(path: Path, kind: type[T], fix: str) -> T:
    """The file as a dataclass. Raises FileError, with this fix, if it was changed or has wrong types."""
    values = read_values(path, fix)
    if values.pop(_KEY, None) != _digest(values):
        raise damaged(path, "its checksum doesn't match", fix)
    try:
        return from_json(kind, values, path.stem)  # type: ignore[no-any-return]
    except (FileError, ValueError) as error:  # ValueError: from the dataclass itself
        raise damaged(path, error, fix) from error


def read_values(path: Path, fix: str) -> dict[str, Any]:
    """The unchecked values of a JSON file, by name. Raises FileError."""
    try:
        return parse(read_bytes(path))
    except ValueError as error:
        raise damaged(path, error, fix) from error


def parse(content: bytes) -> dict[str, Any]:
    """The JSON object, with control characters in text replaced. Raises ValueError, also for NaN and huge numbers."""
    try:
        values = _clean(_DECODER.decode(content.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if type(values) is not dict:
        raise ValueError("it isn't a JSON object")
    return values


def damaged(path: Path, error: Exception | str, fix: str) -> FileError:
    """The error for a file with unexpected content."""
    return FileError(f"{path} is damaged ({error}): {fix}")


def digest(content: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(content).hexdigest()


def _digest(values: dict[str, Any]) -> str:
    return digest(json.dumps(values, sort_keys=True).encode())


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {_clean(key): _clean(item) for key, item in value.items()} if isinstance(value, dict) else value


def _float(text: str) -> float:
    return float(text) if abs(float(text)) <= LARGEST else _refuse(text)


def _integer(text: str) -> int:
    # int() of many digits raises.
    return int(text) if len(text) < 20 and abs(int(text)) <= _LARGEST_INTEGER else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{short(text)} is out of range")


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_refuse)
