"""A file of weights into a model: safetensors, or a state dict read without running code."""

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
# What torch.save writes begins as a zip archive or, before torch 1.6, as a pickle.
_STARTS = (b"PK\x03\x04", b"\x80")
_SAVE = "save weights with torch.save(model.state_dict(), 'weights.pth') or as safetensors"


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the file's weights into the model; all names and shapes must fit."""
    try:
        missing, unexpected = model.load_state_dict(state_dict(path), strict=False)
    except RuntimeError as error:
        raise ModelError(f"{path} does not fit the model (for other classes, give --classes): {error}") from error
    check_complete(path, missing, unexpected)


def check_complete(path: Path, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raise unless the file had what the model needs and nothing else."""
    wrong = [
        f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for what, names in (("it lacks", list(missing)), ("the model has no", list(unexpected)))
        if names
    ]
    if wrong:
        raise ModelError(f"{path} does not fit the model: {'; '.join(wrong)}")


def state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of the file, without a checkpoint's wrapper or the prefix of DataParallel or torch.compile."""
    state = _read(path)
    for key in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        keys = f" (keys {', '.join(map(str, list(state)[:5]))})" if isinstance(state, dict) else ""
        raise FileError(f"{path} holds no state dict{keys}: save model.state_dict()")
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _read(path: Path) -> Any:
    head = _head(path)
    if not head:
        raise FileError(f"{path} is empty: {_SAVE}")
    if path.suffix == ".safetensors" or head[8:9] == b"{":  # after the length of its header, a safetensors file has one
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise FileError(f"{path} is not a safetensors file, or was cut short ({error}): {_SAVE}") from error
    if not head.startswith(_STARTS):
        raise FileError(f"{path} is not a file of weights: {_SAVE}")
    return _unpickled(path)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(9)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path} cannot be read as weights: {reason}") from error


def _unpickled(path: Path) -> Any:
    """What torch.save has written, if it is tensors and plain values alone."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch asks to report foreign pickles, which are refused here
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what is damaged can raise anything
        if isinstance(error, UnpicklingError) and "unsupported" in str(error).lower():
            raise FileError(
                f"{path} is not a file of weights alone, and reading more could run code: save model.state_dict(), "
                "or a safetensors file"
            ) from error
        raise FileError(
            f"{path} is damaged, was cut short or is no file of weights: get it anew, or {_SAVE}"
        ) from error
