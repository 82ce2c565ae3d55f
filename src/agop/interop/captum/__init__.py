"""Captum, both ways: our methods as its attributions, and its attributions as our methods, `captum:DeepLift`."""

from __future__ import annotations

from agop.errors import MissingExtraError

try:
    import captum.attr  # noqa: F401  # everything here needs it
except ImportError as error:
    raise MissingExtraError("agop.interop.captum", "captum") from error

from agop.interop.captum.attributions import AGOPGlobal, AGOPLocal, AGOPWeighted
from agop.interop.captum.methods import Captum, method_class

__all__ = ["AGOPGlobal", "AGOPLocal", "AGOPWeighted", "Captum", "method_class"]
