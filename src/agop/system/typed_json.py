"""JSON from files as values of annotated types: numbers are bounded, text has no control characters."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from reprlib import repr as short
from typing import Any, get_args, get_origin, get_type_hints

# Sums and squares of such numbers are finite.
LARGEST, _LARGEST_INTEGER = 1e100, 2**53
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def parse(content: bytes) -> Any:
    """The JSON value. Raises ValueError, also for NaN, infinity and huge numbers."""
    try:
        return _DECODER.decode(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def convert(kind: Any, value: Any, name: str) -> Any:
    """The JSON value as the annotated type: a dataclass, tuple, dict, number or text. Raises ValueError.

    Unknown keys of a dataclass are ignored. Control characters in text are replaced.
    """
    if kind is Any or type(value) is kind:  # not isinstance: True is an int
        return _clean(value) if kind is str else value
    arguments = get_args(kind)
    if type(None) in arguments:  # X | None
        return None if value is None else convert(arguments[0], value, name)
    if kind is float and type(value) is int:
        return float(value)
    expected: Any = {tuple: list}.get(get_origin(kind), dict if is_dataclass(kind) else get_origin(kind) or kind)
    if type(value) is not expected:
        raise ValueError(f"{name} is {short(value)}, not {expected.__name__}")
    return _container(kind, value, name)


def _container(kind: Any, value: Any, name: str) -> Any:
    if is_dataclass(kind):
        return _record(kind, value, name)
    first, second = get_args(kind)  # tuple[item, ...] or dict[str, item]
    if get_origin(kind) is tuple:
        return tuple(convert(first, item, name) for item in value)
    return {_clean(key): convert(second, item, f"{name}.{key}") for key, item in value.items()}


def _clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


def _record(kind: Any, values: dict[str, Any], name: str) -> Any:
    kinds, required = _fields(kind)
    if missing := sorted(required - values.keys()):
        raise ValueError(f"{name} lacks {', '.join(missing)}")
    return kind(**{key: convert(kinds[key], values[key], f"{name}.{key}") for key in kinds if key in values})


@lru_cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Type of each field, and the fields without a default."""
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    return get_type_hints(kind), frozenset(required)


def _float(text: str) -> float:
    return float(text) if abs(float(text)) <= LARGEST else _refused(text)


def _integer(text: str) -> Any:
    if len(text) > 20 or abs(int(text)) > _LARGEST_INTEGER:  # int() of many digits raises
        return _refused(text)
    return int(text)


def _refused(text: str) -> Any:
    raise ValueError(f"{short(text)} is out of range")


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_refused)
