"""Every error and warning agop raises on purpose.

AGOPError
├── InputError (ValueError)       images, labels, targets or options that cannot be used
│   ├── UnknownNameError          a name that no plug-in carries
│   ├── LayerError                a layer that does not exist, or has no map to weigh
│   └── PriorError                a prior that is missing, or does not fit the images
├── NoSamplesError (ValueError)   a mean over nothing
├── GradientError (ArithmeticError)   NaN or infinite gradients
├── ModelError (RuntimeError)     a model that cannot be loaded, run or differentiated
├── MissingExtraError (ImportError)   an optional dependency that isn't installed
├── RankError (RuntimeError)      a job of several processes of which one has ended early
└── FileError (OSError)           a file that cannot be read or written

AGOPWarning (UserWarning)         something to look at; the result stands
"""

from __future__ import annotations

import sys
import warnings


class AGOPError(Exception):
    """The base of every error agop raises on purpose."""


class InputError(AGOPError, ValueError):
    """Images, labels, targets or options that cannot be used."""


class UnknownNameError(InputError):
    """A name that no plug-in carries."""


class LayerError(InputError):
    """A layer that does not exist, or has no map to weigh."""


class PriorError(InputError):
    """A prior that is missing, or does not fit the images."""


class NoSamplesError(AGOPError, ValueError):
    """A mean over nothing."""


class GradientError(AGOPError, ArithmeticError):
    """NaN or infinite gradients."""


class ModelError(AGOPError, RuntimeError):
    """A model that cannot be loaded, run or differentiated."""


class MissingExtraError(AGOPError, ImportError):
    """An optional dependency that isn't installed."""

    def __init__(self, feature: str, package: str, extra: str | None = None) -> None:
        super().__init__(f"{feature} needs {package}: pip install 'agop[{extra or package}]'")


class RankError(AGOPError, RuntimeError):
    """A job of several processes of which one has ended early."""


class FileError(AGOPError, OSError):
    """A file that cannot be read or written."""


class AGOPWarning(UserWarning):
    """Something to look at; the result stands."""


def warn(message: str) -> None:
    """Issue an AGOPWarning that points at the line which called into agop."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("agop"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, AGOPWarning, stacklevel=level)
