"""Loads exported programs (.pt2), unless a part of them would be unpickled."""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from agop.errors import ModelError
from agop.system.files import read_bytes

# The parts that torch.export.save writes for plain tensors. torch.export.load unpickles or runs other parts.
_KNOWN_PARTS = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|\.format_version|models/model\.json"
    r"|data/sample_inputs/model\.pt|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json))"
)


def load_exported(path: Path) -> nn.Module:
    """Load the module of a file that torch.export.save wrote.

    An exported program is a program: load only files that you trust. This function refuses pickles inside it.
    """
    content = read_bytes(path)
    causes: list[BaseException] = []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _refuse_pickles(path, archive)
        with _causes_in_log(causes):
            return torch.export.load(io.BytesIO(content)).module()
    except ModelError:
        raise
    except Exception as error:  # torch raises anything for an unknown file
        cause = causes[0] if causes else error
        raise ModelError(f"{path} can't be read as an exported program: {cause}: export the model again") from error


@contextmanager
def _causes_in_log(causes: list[BaseException]) -> Iterator[None]:
    """Collect the exceptions that torch.export logs with a traceback, before it raises another one, and don't log."""

    def collect(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            causes.append(record.exc_info[1])
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


def _refuse_pickles(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise if torch.export.load could unpickle a part."""
    names = archive.namelist()
    suspicious = [name for name in names if not _KNOWN_PARTS.fullmatch(name)]
    suspicious += [name for name in names if sum(name.lower() == other.lower() for other in names) > 1]
    configs = [json.loads(archive.read(name))["config"] for name in names if name.endswith("_config.json")]
    suspicious += [part for config in configs for part, entry in config.items() if entry["use_pickle"] is not False]
    for name in (name for name in names if name.endswith("/sample_inputs/model.pt")):
        try:
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        except Exception:  # whatever is wrong with it, torch would unpickle it next
            suspicious.append(name)
    if suspicious or not configs:
        parts = ", ".join(suspicious[:3]) or "an older format"
        raise ModelError(f"{path} has parts that may be pickles and run code ({parts}): export the model again")
