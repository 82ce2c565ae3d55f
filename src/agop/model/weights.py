"""Loads weights from a file: safetensors, or a state dict read without running code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from agop.errors import FileError, ModelError

_WRAPPERS = ("state_dict", "model_state_dict", "model")
# Files of torch.save start like a zip archive or, before torch 1.6, like a pickle.
_STARTS = (b"PK\x03\x04", b"\x80")
_SAVE = "save weights with torch.save(model.state_dict(), 'weights.pth') or as safetensors"


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file's weights into the model. All names and shapes must match."""
    try:
        missing, unexpected = model.load_state_dict(state_dict(path), strict=False)
    except RuntimeError as error:
        raise ModelError(f"{path} does not match the model (for other classes, give --num-classes): {error}") from error
    check_complete(path, missing, unexpected)


def check_complete(path: Path, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raise unless the file has all weights of the model and no others."""
    problems = [
        f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for what, names in (("it lacks", list(missing)), ("the model doesn't have", list(unexpected)))
        if names
    ]
    if problems:
        raise ModelError(f"{path} does not match the model: {'; '.join(problems)}")


def state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, unwrapped from a checkpoint and from the prefixes of DataParallel and torch.compile."""
    state = _read(path)
    for key in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        keys = f" (keys {', '.join(map(str, list(state)[:5]))})" if isinstance(state, dict) else ""
        raise FileError(f"{path} does not contain a state dict{keys}: save model.state_dict()")
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _read(path: Path) -> Any:
    head = _head(path)
    if not head:
        raise FileError(f"{path} is empty: {_SAVE}")
    if path.suffix == ".safetensors" or head[8:9] == b"{":  # 8 bytes of length, then a JSON header
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise FileError(f"{path} is not a safetensors file, or is truncated ({error}): {_SAVE}") from error
    if not head.startswith(_STARTS):
        raise FileError(f"{path} is not a weights file: {_SAVE}")
    return _unpickle(path)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(9)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path} can't be read: {reason}") from error


def _unpickle(path: Path) -> Any:
    """Load a file of torch.save that holds only tensors and plain values."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch asks to report unknown pickles, which raise here
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a corrupt file can raise anything
        if isinstance(error, UnpicklingError) and "unsupported" in str(error).lower():
            raise FileError(
                f"{path} contains more than weights, and loading it could run code: save model.state_dict(), or a "
                "safetensors file"
            ) from error
        raise FileError(
            f"{path} is corrupt, truncated, or not a weights file: download it again, or {_SAVE}"
        ) from error
