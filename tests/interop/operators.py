"""Imports torchvision, with stand-ins for those of its compiled operators that its build does not bring for this torch.

No model here calls them; only their names are asked for when torchvision is imported. Where that works as it is, or
cannot work at all, nothing is defined; what is wrong is then told by the import of those who need it.
"""

import importlib
import re
import sys
from contextlib import suppress

import torch


def _missing() -> str | None:
    """The operator for whose lack torchvision cannot be imported; None if that is not why."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        found = re.fullmatch(r"operator torchvision::(\w+) does not exist", str(error))
        return found and found[1]
    return None


with suppress(ImportError, OSError):
    while (_name := _missing()) is not None:
        torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for _module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[_module]  # what was imported of it before it failed
