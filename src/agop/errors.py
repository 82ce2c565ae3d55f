"""The errors and warnings that agop raises on purpose.

AGOPError
├── InputError (ValueError)       invalid images, labels, targets or options
│   ├── UnknownNameError          a name without a plug-in
│   ├── LayerError                a layer that doesn't exist or has no feature map
│   └── PriorError                a prior that is missing or doesn't match the images
├── NoSamplesError (ValueError)   a mean over no samples
├── GradientError (ArithmeticError)   NaN or infinite gradients
├── ModelError (RuntimeError)     a model that can't be loaded, run or differentiated
├── MissingExtraError (ImportError)   an optional dependency that isn't installed
├── RankError (RuntimeError)      a distributed job in which a rank ended early
└── FileError (OSError)           a file that can't be read or written

AGOPWarning (UserWarning)         something to check; the result is valid
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class AGOPError(Exception):
    """Base class of all errors that agop raises on purpose."""


class InputError(AGOPError, ValueError):
    """Invalid images, labels, targets or options."""


class UnknownNameError(InputError):
    """A name without a plug-in."""


class LayerError(InputError):
    """A layer that doesn't exist or has no feature map."""


class PriorError(InputError):
    """A prior that is missing or doesn't match the images."""


class NoSamplesError(AGOPError, ValueError):
    """A mean over no samples."""


class GradientError(AGOPError, ArithmeticError):
    """NaN or infinite gradients."""


class ModelError(AGOPError, RuntimeError):
    """A model that can't be loaded, run or differentiated."""


class MissingExtraError(AGOPError, ImportError):
    """An optional dependency that isn't installed. `beside` is added to the command that installs it."""

    def __init__(self, feature: str, package: str, extra: str | None = None, beside: str = "") -> None:
        super().__init__(f"{feature} needs {package}: pip install 'agop[{extra or package}]' {beside}".rstrip())


class RankError(AGOPError, RuntimeError):
    """A distributed job in which a rank ended early."""


class FileError(AGOPError, OSError):
    """A file that can't be read or written."""


class AGOPWarning(UserWarning):
    """Something to check; the result is valid."""


def warn(message: str) -> None:
    """Issue an AGOPWarning that points at the line that called agop."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("agop"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, AGOPWarning, stacklevel=level)


@contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """A list that holds, after the block, the messages of agop's warnings, each once. Other warnings are issued."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    for warning in caught:
        if not issubclass(warning.category, AGOPWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) not in messages:
            messages.append(str(warning.message))
