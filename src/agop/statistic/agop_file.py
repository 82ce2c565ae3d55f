"""The AGOP file: tensors and a JSON object in one safetensors file, with a checksum of both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor

from agop.errors import FileError
from agop.statistic.provenance import EARLIER_FORMATS, FORMAT, Provenance
from agop.system.files import read_bytes, write_atomically
from agop.system.safetensors_metadata import safetensors_metadata
from agop.system.typed_json import from_json

Tensors = dict[str, Tensor]
_KEY, _CHECKSUM = "agop", "checksum"
# Largest size before the crop, as a multiple of the size after it: a few bytes must not ask for gigabytes.
_MOST_RESIZE = 16


@dataclass(frozen=True)
class _Preprocessing:
    """Types of the fields of `Preprocessing`, whose package is above this one."""

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    gray: bool = False
    resize: int | tuple[int, int] | None = None
    interpolation: str = ""


def write_agop_file(path: Path, tensors: Tensors, provenance: Provenance) -> None:
    """Write the file, or leave an existing one unchanged."""
    values = provenance.to_dict()
    metadata = json.dumps(values | {_CHECKSUM: _checksum(tensors, values)})
    write_atomically(path, bytes_from_tensors(tensors, {_KEY: metadata}))


def read_agop_file(path: Path) -> tuple[Tensors, Provenance]:
    """Tensors and provenance of a file. Raises FileError if they are damaged or don't match each other."""
    content = read_bytes(path)
    try:
        tensors = tensors_from_bytes(content)
        values = json.loads(safetensors_metadata(content)[_KEY], parse_constant=_reject)
        file_format = values["format"]
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise FileError(
            f"{path} is not an AGOP file, or is truncated ({type(error).__name__}: {error}): "
            "create one with agop.fit or AGOPTrainingHook"
        ) from error
    if type(file_format) is int and file_format > FORMAT:
        raise FileError(
            f"{path} has format {short_repr(file_format)}, this agop reads format {FORMAT}: upgrade agop, or make it "
            "again"
        )
    try:
        return tensors, _checked_provenance(tensors, values)
    except (FileError, RecursionError) as error:
        raise FileError(f"{path} is a corrupt AGOP file ({error}): make it again") from error


def is_agop_file(path: Path) -> bool:
    """True if the file's header is that of an AGOP file."""
    try:
        with safe_open(path, "pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def add_bytes(digest: hashlib._Hash, tensor: Tensor) -> None:
    """Add a tensor's bytes to a digest."""
    # As bytes, because NumPy doesn't have all of torch's dtypes.
    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _checksum(tensors: Tensors, values: dict[str, Any]) -> str:
    """Digest of the metadata and of all tensors with their names, dtypes and shapes."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        add_bytes(digest, tensor)
    return digest.hexdigest()[:16]


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} isn't JSON")


def _checked_provenance(tensors: Tensors, values: dict[str, Any]) -> Provenance:
    """The provenance, if the checksum is right, and if the tensors match each other and the provenance."""
    checksum = values.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(tensors, values):  # files of earlier versions have none
        raise FileError("its content doesn't match its checksum")
    provenance = Provenance.from_dict(values)
    if provenance.format not in (FORMAT, *EARLIER_FORMATS):
        raise FileError(f"its format is {provenance.format}")
    if not _are_consistent(tensors, provenance):
        raise FileError("its tensors don't match each other or the provenance")
    _check_preprocessing(provenance.data.preprocessing, tensors["diagonal"].shape)
    return replace(provenance, format=FORMAT)


def _are_consistent(tensors: Tensors, provenance: Provenance) -> bool:
    diagonal, by_class, counts = (tensors.get(name) for name in ("diagonal", "class_diagonals", "class_counts"))
    count, shape = provenance.count or 0, provenance.input_shape
    if diagonal is None or diagonal.ndim != 3 or diagonal.numel() == 0 or count == 0 or not _are_means(diagonal):
        return False
    if shape and shape != diagonal.shape:
        return False
    if not (
        _are_patches_consistent(tensors, provenance, counts)
        and _is_sketch(tensors.get("sketch"), diagonal)
        and _are_moments(tensors.get("image_moments"), diagonal)
        and _is_direction(tensors.get("mean_direction"), diagonal)
        and _are_references(tensors.get("references"), diagonal, count)
    ):
        return False
    if by_class is None or counts is None:
        return by_class is None and counts is None
    if counts.dtype != torch.int64 or counts.ndim != 1 or by_class.shape != (len(counts), *diagonal.shape):
        return False
    return (
        bool((counts >= 0).all())
        and sum(counts.tolist()) == count  # not counts.sum(), which may overflow
        and len(counts) == (provenance.classes or len(counts))
        and _are_means(by_class[counts > 0])
    )


def _are_patches_consistent(tensors: Tensors, provenance: Provenance, counts: Tensor | None) -> bool:
    """True if the patch matrix has a layer, and if those of the classes match it."""
    whole, by_class = tensors.get("patch_matrix"), tensors.get("class_patch_matrices")
    if whole is None:
        return by_class is None and provenance.layer is None
    if provenance.layer is None or whole.ndim != 2 or not _are_patch_matrices(whole):
        return False
    if by_class is None:
        return True
    return (
        counts is not None
        and by_class.shape == (len(counts), *whole.shape)
        and _are_patch_matrices(by_class[counts > 0])
    )


def _are_patch_matrices(values: Tensor) -> bool:
    """True for finite, symmetric matrices (…,D,D) with means of squares on their diagonals."""
    if values.dtype != torch.float64 or values.shape[-1] != values.shape[-2] or not bool(values.isfinite().all()):
        return False
    return _are_means(values.diagonal(dim1=-2, dim2=-1)) and torch.allclose(values, values.mT, rtol=1e-9, atol=0)


def _is_sketch(rows: Tensor | None, diagonal: Tensor) -> bool:
    if rows is None:
        return True
    is_float = rows.dtype in (torch.float32, torch.float64)
    return is_float and rows.shape == (len(rows), *diagonal.shape) and bool(rows.isfinite().all())


def _are_moments(moments: Tensor | None, diagonal: Tensor) -> bool:
    if moments is None:
        return True
    is_complete = moments.dtype == torch.float32 and moments.shape == (2, *diagonal.shape)
    return is_complete and bool(moments.isfinite().all()) and bool((moments[1] >= 0).all())


def _is_direction(direction: Tensor | None, diagonal: Tensor) -> bool:
    """True for a mean of non-negative unit vectors."""
    if direction is None:
        return True
    is_map = direction.dtype == torch.float32 and direction.shape == diagonal.shape and bool((direction >= 0).all())
    return is_map and float(direction.double().square().sum()) < 1 + 1e-5


def _are_references(images: Tensor | None, diagonal: Tensor, count: int) -> bool:
    if images is None:
        return True
    is_some = images.dtype == torch.float32 and images.ndim == 4 and 0 < len(images) <= count
    return is_some and images.shape[1:] == diagonal.shape and bool(images.isfinite().all())


def _are_means(squares: Tensor) -> bool:
    """True if the values can be means of squared gradients."""
    is_float = squares.dtype in (torch.float32, torch.float64)
    return is_float and bool((squares >= 0).all()) and bool(squares.isfinite().all())


def _check_preprocessing(preprocessing: dict[str, Any], shape: torch.Size) -> None:
    """Raise unless each value has its type, and the images have the diagonal's shape (C,H,W)."""
    from_json(_Preprocessing, preprocessing, "provenance.data.preprocessing")
    for name, value in preprocessing.items():
        if value is None and name != "resize":
            raise FileError(f"provenance.data.preprocessing.{name} has no value")
    size, gray, resize = (preprocessing.get(name) for name in ("size", "gray", "resize"))
    if size is not None and size != list(shape[1:]):
        raise FileError(f"its preprocessing gives images of size {short_repr(size)}, its diagonal is {tuple(shape)}")
    if gray is not None and gray is not (shape[0] == 1):
        raise FileError(f"its preprocessing has gray {short_repr(gray)}, its diagonal is {tuple(shape)}")
    sides = resize if isinstance(resize, list) else [] if resize is None else [resize]
    if not all(type(side) is int and 0 < side <= _MOST_RESIZE * max(shape[1:]) for side in sides):
        raise FileError(f"its preprocessing has resize {short_repr(resize)} for images of {tuple(shape[1:])}")
