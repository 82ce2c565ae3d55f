"""Import torchvision, with placeholders for compiled operators that its build lacks for this torch.

torchvision asks for these operators by name on import, but no model in these tests calls them. If the import works, or
fails for another reason, nothing is defined; a failing import then raises in the test that needs torchvision.
"""

import importlib
import re
import sys
from contextlib import suppress

import torch


def _missing_operator() -> str | None:
    """Name of the operator whose absence makes the import fail. None if it isn't that."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        match = re.fullmatch(r"operator torchvision::(\w+) does not exist", str(error))
        return match and match[1]
    return None


with suppress(ImportError, OSError):
    while (_name := _missing_operator()) is not None:
        torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for _module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[_module]  # imported before the failure
