"""Loads weights from a file: safetensors, or a state dict read without running code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from agop.errors import FileError, ModelError, warn

_WRAPPERS = ("state_dict", "model_state_dict", "model")
# Files of torch.save start like a zip archive or, before torch 1.6, like a pickle.
_STARTS = (b"PK\x03\x04", b"\x80")
_SAVE = "save weights with torch.save(model.state_dict(), 'weights.pth') or as safetensors"


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file's weights into the model. All names and shapes must match."""
    try:
        missing, unexpected = model.load_state_dict(state_dict(path, model), strict=False)
    except RuntimeError as error:
        problems = " ".join(line.strip() for line in str(error).splitlines()[1:] or [str(error)])
        raise ModelError(
            f"{path} does not match the model: {problems} Build the network as in training (for another number of "
            "classes of a library's model: --num-classes)"
        ) from error
    check_complete(path, missing, unexpected)


def check_complete(path: Path, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raise unless the file has all weights of the model and no others."""
    problems = [
        f"{what} {_some(names)}"
        for what, names in (("it lacks", list(missing)), ("the model doesn't have", list(unexpected)))
        if names
    ]
    if problems:
        raise ModelError(f"{path} does not match the model: {'; '.join(problems)}")


def state_dict(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file or checkpoint, without a prefix before the names of the model's tensors."""
    state = _read(path)
    for key in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        keys = f" (keys {', '.join(map(str, list(state)[:5]))})" if isinstance(state, dict) else ""
        raise FileError(f"{path} does not contain a state dict{keys}: save model.state_dict()")
    # Files of old torch versions have no num_batches_tracked, and load without it.
    names = [name for name in model.state_dict() if not name.endswith("num_batches_tracked")]
    prefix = _prefix(path, state, names)
    outside = [name for name in state if not name.startswith(prefix)]
    if outside:
        warn(f"{path}: ignored {_some(outside)}, which isn't below {prefix}")
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _prefix(path: Path, state: Collection[str], names: Collection[str]) -> str:
    """What precedes the model's names in the file: module. of DataParallel, model. of a LightningModule, or nothing."""
    prefixes = sorted({"", *(name[: dot.end()] for name in state for dot in re.finditer(r"\.", name))})
    matches = {prefix: sum(prefix + name in state for name in names) for prefix in prefixes}
    complete = [prefix for prefix in prefixes if matches[prefix] == len(names)]
    if "" in complete:
        return ""
    if len(complete) > 1:
        raise ModelError(f"{path} has the model's weights below each of {', '.join(complete)}: save one of them")
    # Without a match, the error should show the file's own names, or those behind a prefix of all of them.
    common = complete or [prefix for prefix in prefixes if all(name.startswith(prefix) for name in state)]
    return max(common, key=lambda prefix: matches[prefix])


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


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
