"""Options in a method's name: `integrated-gradients:steps=200`, several separated by commas."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Union, get_args, get_origin

from agop.errors import InputError
from agop.methods.base import Method
from agop.registry import unknown_name_error

_OPTION = r"[A-Za-z_]\w*="


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """The name before its options, and the text of each option."""
    base, *options = re.split(rf":(?={_OPTION})", str(name), maxsplit=1)
    if not options:
        return base, {}
    # A comma inside a value, as in (1,3,3), isn't followed by another option.
    pairs = (text.partition("=") for text in re.split(rf",(?=\s*{_OPTION})", options[0]))
    return base, {option.strip(): value.strip() for option, _, value in pairs}


def with_options(name: str, method: type[Method] | Method, texts: Mapping[str, str]) -> Method:
    """The method with the options of a name. Raises InputError for unknown options and wrong values."""
    if not texts:
        return method() if isinstance(method, type) else method
    kind = method if isinstance(method, type) else type(method)
    known = kind.option_types()
    for option in texts:
        if not known:
            raise InputError(f"{name} has no options: remove :{option}=")
        if option not in known:
            raise unknown_name_error(f"option of {name}", option, list(known))
    arguments = kind.arguments({key: _value(f"{name}: {key}", text, known[key]) for key, text in texts.items()})
    if isinstance(method, type):
        return method(**arguments)
    mappings = {field: value for field, value in arguments.items() if isinstance(value, dict)}
    merged = {field: {**getattr(method, field), **value} for field, value in mappings.items()}
    return replace(method, **(arguments | merged))


def _value(what: str, text: str, kind: Any) -> Any:
    """The value of an option's text, in the first type of the union that can read it."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    # Last those that accept every text.
    readers = sorted((_READERS[each] for each in kinds if each in _READERS), key=lambda reader: reader[1] in _TAKE_ALL)
    for _, read in readers or [_LITERAL]:
        try:
            return read(text)
        except (ValueError, SyntaxError, KeyError):
            continue
    raise InputError(f"{what} is {text!r}: give {' or '.join(wanted for wanted, _ in readers or [_LITERAL])}")


def _literal_or_text(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


_TAKE_ALL = (str, _literal_or_text)
_LITERAL: tuple[str, Callable[[str], Any]] = ("a Python literal, or set it in Python", ast.literal_eval)
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a number", float),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    type(None): ("none", lambda text: {"none": None}[text.lower()]),
    str: ("text", str),
    Any: ("a value", _literal_or_text),
}
