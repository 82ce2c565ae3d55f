"""An exported program (.pt2) as a module, if it has no part that torch would unpickle."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import torch
from torch import nn

from agop.errors import ModelError
from agop.system.files import read_bytes

# All that torch.export.save writes for a model of plain tensors. Other parts are unpickled or run by torch.export.load.
_KNOWN = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|\.format_version|models/model\.json"
    r"|data/sample_inputs/model\.pt|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json))"
)


def load_exported(path: Path) -> nn.Module:
    """The module of a file written by torch.export.save.

    An exported program is a program: load only what you trust. What is refused here is a pickle inside.
    """
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _refuse_pickles(path, archive)
        return torch.export.load(io.BytesIO(content)).module()
    except ModelError:
        raise
    except Exception as error:  # a foreign file makes torch raise anything
        raise ModelError(f"{path} cannot be read as an exported program: {error}") from error


def _refuse_pickles(path: Path, archive: zipfile.ZipFile) -> None:
    """torch.export.load unpickles what it cannot read otherwise, so look before it does."""
    names = archive.namelist()
    strange = [name for name in names if not _KNOWN.fullmatch(name)]
    strange += [name for name in names if sum(name.lower() == other.lower() for other in names) > 1]
    configs = [json.loads(archive.read(name))["config"] for name in names if name.endswith("_config.json")]
    strange += [part for config in configs for part, entry in config.items() if entry["use_pickle"] is not False]
    for name in (name for name in names if name.endswith("/sample_inputs/model.pt")):
        try:
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        except Exception:  # whatever is wrong with it, torch would go on to unpickle it
            strange.append(name)
    if strange or not configs:
        told = ", ".join(strange[:3]) or "an older format"
        raise ModelError(
            f"{path} holds parts that may be pickles and run code ({told}): refused; export the model again"
        )
