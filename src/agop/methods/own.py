"""The user's own method by package.module:NAME: a class, or an object with its options."""

from __future__ import annotations

from agop.errors import InputError, ModelError, UnknownNameError
from agop.methods.base import Method
from agop.model.user_code import load_user_object


def load_user_method(name: str) -> type[Method] | Method:
    """Resolve package.module:NAME to a Method class or object. Raises UnknownNameError or InputError."""
    try:
        method = load_user_object(name, "method", _is_candidate)
    except ModelError as error:
        raise UnknownNameError(f"no method is named {name!r}: {error}") from error
    if not _is_method(method):
        raise InputError(
            f"{name} is a {type(method).__name__}: give a subclass of agop.methods.Method, or an object of one"
        )
    if getattr(method, "__abstractmethods__", ()):
        raise InputError(f"{name} has no maps: define maps(self, job)")
    if not hasattr(method, "name"):
        raise InputError(f"{name} has no name: add name = 'my-method' to its class")
    return method  # type: ignore[no-any-return]  # _is_method


def _is_method(value: object) -> bool:
    return isinstance(value, Method) or (isinstance(value, type) and issubclass(value, Method))


def _is_candidate(value: object) -> bool:
    return _is_method(value) and value is not Method
