"""A module of the user's own, by the name before the colon of package.module:NAME."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from agop.errors import ModelError


def own_module(name: str) -> Any:
    """The module; the current folder is searched, too. An error that says why if it cannot be had."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"leave out the .py: {name[:-3]}:…" if name.endswith(".py") else "run this from its folder"
            raise ModelError(f"there is no module {name} here: {hint}") from error
        raise ModelError(f"{name} needs {error.name}, which is not installed") from error
    except Exception as error:  # the user's own code
        raise ModelError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
