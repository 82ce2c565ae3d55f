"""Captum in both directions: agop's methods as Captum attributions, and Captum's as methods, `captum:DeepLift`."""

from __future__ import annotations

from agop.errors import MissingExtraError

try:
    import captum.attr  # noqa: F401  # every module of this package needs it
except ImportError as error:
    raise MissingExtraError("agop.interop.captum", "captum") from error

from agop.interop.captum.gradient_attributions import AGOPGlobal, AGOPLocal, AGOPWeighted
from agop.interop.captum.names import Captum, method_class

__all__ = ["AGOPGlobal", "AGOPLocal", "AGOPWeighted", "Captum", "method_class"]
