"""The user's own modules, and objects in them, by package.module:NAME."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agop.errors import ModelError, UnknownNameError
from agop.registry import unknown_name_error


def load_user_object(spec: str, kind: str, is_candidate: Callable[[Any], bool]) -> Any:
    """Resolve package.module:NAME. Raises UnknownNameError, which lists the module's candidates of that kind."""
    module_name, _, path = spec.partition(":")
    module = import_user_module(module_name)
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            public = [name for name, other in vars(module).items() if is_candidate(other) and not name.startswith("_")]
            if not public:
                raise UnknownNameError(f"no {kind} is named {spec!r}: {module_name} defines no {kind}")
            raise unknown_name_error(kind, spec, [f"{module_name}:{name}" for name in public])
        value = getattr(value, part)
    return value


def import_user_module(name: str) -> Any:
    """Import a module from the current folder or the Python path. Raises ModelError if that fails."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"omit the .py: {name[:-3]}:…" if name.endswith(".py") else "run this from its folder"
            raise ModelError(f"no module named {name}: {hint}") from error
        raise ModelError(f"{name} needs {error.name}, which isn't installed") from error
    except SystemExit as error:
        raise ModelError(
            f"{name} can't be imported, because it calls sys.exit({error.code!r}): move what it runs as a script below "
            "if __name__ == '__main__':"
        ) from error
    except Exception as error:  # the user's own code
        raise ModelError(f"{name} can't be imported: {type(error).__name__}: {error}") from error
