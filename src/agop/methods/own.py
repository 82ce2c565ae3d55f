"""A method of the user's own, by package.module:NAME: a class, or an object with its options."""

from __future__ import annotations

from typing import Any

from agop.errors import InputError, ModelError, UnknownNameError
from agop.methods.base import Method
from agop.model.loading import import_user_module
from agop.registry import unknown_name_error


def load_user_method(name: str) -> type[Method] | Method:
    """What the name stands for; an error that says why if that is no method."""
    module, _, own = name.partition(":")
    try:
        place = import_user_module(module)
    except ModelError as error:
        raise UnknownNameError(f"no method is named {name!r}: {error}") from error
    found: Any = place
    for part in own.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise _nothing(name, module, place)
    if not _is_method(found):
        raise InputError(
            f"{name} is a {type(found).__name__}: name a subclass of agop.methods.Method, or an object of one"
        )
    for lacking in [*sorted(getattr(found, "__abstractmethods__", ())), *([] if hasattr(found, "name") else ["name"])]:
        raise InputError(f"{name} has no {lacking}: a method needs a name and maps()")
    return found  # type: ignore[no-any-return]  # it was just looked at


def _nothing(name: str, module: str, place: Any) -> UnknownNameError:
    known = [f"{module}:{each}" for each, value in vars(place).items() if _is_method(value) and value is not Method]
    if known:
        return unknown_name_error("method", name, known)
    return UnknownNameError(f"no method is named {name!r}: {module} holds none, subclass agop.methods.Method there")


def _is_method(value: object) -> bool:
    return isinstance(value, Method) or (isinstance(value, type) and issubclass(value, Method))
