"""An exported program (.pt2) as a module, if nothing in it is a pickle that runs code."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import torch
from torch import nn

from agop.errors import ModelError


def load_exported(path: Path) -> nn.Module:
    """The module of a file written by torch.export.save."""
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_pickles(path, archive)
        return torch.export.load(path).module()
    except ModelError:
        raise
    except Exception as error:  # a foreign file makes torch raise anything
        raise ModelError(f"{path} cannot be read as an exported program: {error}") from error


def _refuse_pickles(path: Path, archive: zipfile.ZipFile) -> None:
    """torch.export.load unpickles what it cannot read otherwise, so look before it does."""
    names = archive.namelist()
    configs = [json.loads(archive.read(name))["config"] for name in names if name.endswith("_config.json")]
    if not configs:
        raise ModelError(f"{path} has an older format, whose parts are pickles: export the model again")
    pickled = [part for config in configs for part, entry in config.items() if entry["use_pickle"]]
    for name in (name for name in names if "/sample_inputs/" in name):
        try:
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        except Exception:  # whatever is wrong with it, torch would go on to unpickle it
            pickled.append(name)
    if pickled:
        raise ModelError(f"{path} holds pickled parts, which could run code ({', '.join(pickled[:3])}): refused")
