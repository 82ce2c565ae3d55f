"""JSON values as dataclasses: each value must have the type that the field declares."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from reprlib import repr as short_repr
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from agop.errors import FileError

_MOST = 2**63 - 1  # torch and NumPy count in int64


def to_json(value: Any) -> Any:
    """The value with dataclasses as dicts, without their empty fields, and tuples as lists."""
    if is_dataclass(value):
        values = ((item.name, to_json(getattr(value, item.name))) for item in fields(value))
        return {name: value for name, value in values if value not in (None, [], {})}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    return value


def from_json(kind: Any, value: Any, name: str) -> Any:
    """The JSON value as an object of the annotated type. Raises FileError with its name if it has another type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _from_union(arguments, value, name)
    if not _matches(kind, value):
        raise FileError(f"{name} is {short_repr(value)}: expected {_json_type(kind).__name__}")
    if is_dataclass(kind):
        return _record(kind, value, name)
    if origin in (tuple, list):
        return origin(_items(arguments, value, name))
    if origin is dict:
        return {key: from_json(arguments[1], item, f"{name}.{key}") for key, item in value.items()}
    return _number(value, name) if kind in (int, float) else value


def _from_union(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    for kind in kinds:
        if _matches(kind, value):
            return from_json(kind, value, name)
    expected = " or ".join(_json_type(kind).__name__ for kind in kinds if kind is not NoneType)
    raise FileError(f"{name} is {short_repr(value)}: expected {expected}")


def _matches(kind: Any, value: Any) -> bool:
    """True if the value has the JSON type of a field. Not isinstance: True is an int. An int is also a float."""
    return type(value) is _json_type(kind) or (kind is float and type(value) is int)


def _json_type(kind: Any) -> Any:
    origin = get_origin(kind) or kind
    return {tuple: list}.get(origin, dict if is_dataclass(kind) else origin)


def _number(value: Any, name: str) -> Any:
    if isinstance(value, int) and not -_MOST <= value <= _MOST:
        raise FileError(f"{name} has {len(str(value))} digits: expected a 64-bit integer")
    if not math.isfinite(value):
        raise FileError(f"{name} is {value}: expected a finite number")
    return value


def _items(kinds: tuple[Any, ...], values: list[Any], name: str) -> list[Any]:
    """Items of list[X], tuple[X, ...] or tuple[X, Y]."""
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(values)
    if len(values) != len(kinds):
        raise FileError(f"{name} has {len(values)} values: expected {len(kinds)}")
    return [from_json(kind, item, name) for kind, item in zip(kinds, values, strict=True)]


def _record(kind: Any, values: dict[str, Any], name: str) -> Any:
    """A dataclass from its fields by name. Unknown keys are ignored."""
    values = {key: value for key, value in values.items() if value is not None}
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    if missing := sorted(required - values.keys()):
        raise FileError(f"{name} lacks {', '.join(missing)}")
    types = get_type_hints(kind)
    return kind(
        **{
            item.name: from_json(types[item.name], values[item.name], f"{name}.{item.name}")
            for item in fields(kind)
            if item.name in values
        }
    )
