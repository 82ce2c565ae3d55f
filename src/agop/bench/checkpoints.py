"""The checkpoint of a network in training: a killed training resumes from it."""

from __future__ import annotations

import io
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from agop.errors import FileError, warn
from agop.system.files import read_bytes, write_atomically

CHECKPOINT = "training.pt"
_KEYS = {"epoch", "attempts", "noted", "model", "optimizer", "schedule", "hook"}


def write_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write the state of a training: tensors and plain values only."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(folder / CHECKPOINT, buffer.getvalue())


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The state of a training; None without a checkpoint, or with a warning if it can't be read."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(read_bytes(path)), weights_only=True)
        missing = _KEYS - state.keys()
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (FileError, RuntimeError, UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        warn(f"{path} can't be read, the training starts again: {error}")
        return None
    return state
